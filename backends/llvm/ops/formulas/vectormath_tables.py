"""Constants of the vector math, for f32 and f64.

Sources of the polynomials (all lowest power first):

* ``exp``: (exp(r) - 1 - r) / r**2 on |r| <= ln 2 / 2; ``exp_wide``: the same on |r| <= ln 2. Our
  own minimax fits: error relative to exp(r) - 1 1.3e-8 (f32), relative to exp(r) 3.6e-18 (f64);
      1.4e-8 and 1.0e-17 (``exp_wide``).
* ``log``: FreeBSD msun (Sun Microsystems, 1993), k_logf.h and k_log.h, in s*s with s = f / (2 + f).
* ``erf_small``: erf(x) / x - 1 in x*x on [0, 1]; ``erf_large``: log(erfc(x)) / x on [1, 4] or [1,
  6]. Our own Remez fits at 60 digits: relative error 1.2e-9 (f32), 1.3e-19 (f64); error of erf
  3.7e-10 (f32), 2.5e-17 (f64).
* ``sin``, ``cos``: f32: Cephes, single/sinf.c; f64: FreeBSD msun, k_sin.c and k_cos.c, in r*r.
* ``half_pi``: pi / 2 cut into three floats of the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass


def coefficients(text: str) -> tuple[float, ...]:
    """Numbers of a text, with spaces between them."""
    return tuple(map(float, text.split()))


@dataclass(frozen=True)
class Table:
    """Constants of one float dtype; see the module's text for the polynomials."""

    mantissa: int
    bias: int
    log2_e: float
    log2_e_low: float
    ln2: float
    ln2_high: float
    ln2_low: float
    exp_low: float
    exp_high: float
    exp2_low: float
    exp2_high: float
    expm1_low: float
    tanh_end: float
    exp: tuple[float, ...]
    exp_wide: tuple[float, ...]
    smallest_normal: float
    subnormal_scale: float
    subnormal_shift: int
    sqrt_half_code: int
    log_ln2_high: float
    log_ln2_low: float
    log: tuple[float, ...]
    erf_end: float
    erf_small: tuple[float, ...]
    erf_large: tuple[float, ...]
    half_pi: tuple[float, float, float]
    two_over_pi: float
    trigonometric_end: float
    sin: tuple[float, ...]
    cos: tuple[float, ...]


_F32 = Table(
    mantissa=23,
    bias=127,
    log2_e=float.fromhex("0x1.715476p+0"),
    log2_e_low=float.fromhex("0x1.4ae0cp-26"),
    ln2=float.fromhex("0x1.62e430p-1"),
    ln2_high=float.fromhex("0x1.62e430p-1"),
    ln2_low=float.fromhex("-0x1.05c610p-29"),
    exp_low=-104.0,
    exp_high=89.0,
    exp2_low=-151.0,
    exp2_high=129.0,
    expm1_low=-30.0,
    tanh_end=10.0,
    exp=(0.499999981511, 0.1666654349, 0.041667200444, 0.008366538229, 0.001388251674),
    exp_wide=coefficients("""
        0.500000345823 0.166666139311 0.0416612702013 0.00833611289498 0.00141044593033
        0.000196105375809"""),
    smallest_normal=2.0**-126,
    subnormal_scale=2.0**23,
    subnormal_shift=23,
    sqrt_half_code=0x3F3504F3,
    log_ln2_high=float.fromhex("0x1.62e300p-1"),
    log_ln2_low=float.fromhex("0x1.2fefa4p-17"),
    log=(0.66666662693023682, 0.40000972151756287, 0.28498786687850952, 0.24279078841209412),
    erf_end=4.0,
    erf_small=coefficients("""
        0.1283791657271276 -0.3761262582549395 0.11283585164940346 -0.026853812751295912
        0.005188329475997895 -0.0008010211194424787 7.85392448067066e-05"""),
    erf_large=coefficients("""
        -1.128697265512307 -0.6349578724064784 -0.10654979115070579 0.024026088871613227
        -0.003764928769009151 0.00035239690455181246 -1.4140182209855045e-05"""),
    half_pi=(
        float.fromhex("0x1.921fb6p+0"),
        float.fromhex("-0x1.777a5cp-25"),
        float.fromhex("-0x1.ee59dap-50"),
    ),
    two_over_pi=float.fromhex("0x1.45f306p-1"),
    trigonometric_end=2.0**17,
    sin=(-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4),
    cos=(4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5),
)

_F64 = Table(
    mantissa=52,
    bias=1023,
    log2_e=float.fromhex("0x1.71547652b82fep+0"),
    log2_e_low=float.fromhex("0x1.777d0ffda0d24p-56"),
    ln2=float.fromhex("0x1.62e42fefa39efp-1"),
    ln2_high=float.fromhex("0x1.62e42fefa39efp-1"),
    ln2_low=float.fromhex("0x1.abc9e3b39803fp-56"),
    exp_low=-746.0,
    exp_high=710.0,
    exp2_low=-1076.0,
    exp2_high=1025.0,
    expm1_low=-60.0,
    tanh_end=20.0,
    exp=coefficients("""
        0.5000000000000011 0.16666666666666413 0.041666666666529746 0.008333333333494126
        0.0013888888943753316 0.00019841269507743002 2.4801492957980166e-05 2.7557584950438185e-06
        2.763030298500368e-07 2.500062937629548e-08"""),
    exp_wide=coefficients("""
        0.4999999999999992811 0.1666666666666693871 0.04166666666670210522 0.008333333333269486269
        0.00138888888835697275 0.0001984126989309545642 2.480159083499373864e-05
        2.755730054843303956e-06 2.755615675231648437e-07 2.505504835954842806e-08
        2.106244374105940614e-09 1.593479535086584722e-10"""),
    smallest_normal=2.0**-1022,
    subnormal_scale=2.0**54,
    subnormal_shift=54,
    sqrt_half_code=0x3FE6A09E667F3BCD,
    log_ln2_high=6.93147180369123816490e-01,
    log_ln2_low=1.90821492927058770002e-10,
    log=coefficients("""
        6.666666666666735130e-01 3.999999999940941908e-01 2.857142874366239149e-01
        2.222219843214978396e-01 1.818357216161805012e-01 1.531383769920937332e-01
        1.479819860511658591e-01"""),
    erf_end=6.0,
    erf_small=coefficients("""
        0.1283791670955126 -0.3761263890318375 0.11283791670954857 -0.026866170645072872
        0.005223977624780658 -0.0008548326978731147 0.00012055331036527582 -1.4925593498607644e-05
        1.6460972693302426e-06 -1.6350023995185962e-07 1.4657872080481512e-08
        -1.136563763928208e-09 5.945216350155034e-11"""),
    erf_large=coefficients("""
        -1.1283788561281165 -0.6366226467631355 -0.1027603811353851 0.01909686886030933
        0.0002641973386872047 -0.0017635297646154938 0.000647776174029068 -5.739788391934733e-05
        -5.895730537569737e-05 3.801905515104456e-05 -1.3345226070652045e-05 3.250474180841823e-06
        -5.7463530383346e-07 7.303416246838243e-08 -6.3600342562536034e-09 3.406609386159675e-10
        -8.472600441188287e-12"""),
    half_pi=(
        float.fromhex("0x1.921fb54442d18p+0"),
        float.fromhex("0x1.1a62633145c07p-54"),
        float.fromhex("-0x1.f1976b7ed8fbcp-110"),
    ),
    two_over_pi=float.fromhex("0x1.45f306dc9c883p-1"),
    trigonometric_end=2.0**30,
    sin=coefficients("""
        -1.66666666666666324348e-01 8.33333333332248946124e-03 -1.98412698298579493134e-04
        2.75573137070700676789e-06 -2.50507602534068634195e-08 1.58969099521155010221e-10"""),
    cos=coefficients("""
        4.16666666666666019037e-02 -1.38888888888741095749e-03 2.48015872894767294178e-05
        -2.75573143513906633035e-07 2.08757232129817482790e-09 -1.13596475577881948265e-11"""),
)

TABLES = {"f32": _F32, "f64": _F64}
