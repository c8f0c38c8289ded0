import operator
from llvmlite import ir
from numba.core import types, cgutils
from numba.core.datamodel import models
from numba.core.extending import register_model, intrinsic, lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
gi = intrinsic(target='generic', prefer_literal=True)
NB = dict(bool_=types.boolean,i8=types.int8,i16=types.int16,i32=types.int32,i64=types.int64,u8=types.uint8,u16=types.uint16,u32=types.uint32,u64=types.uint64,f32=types.float32,f64=types.float64)
REV = {v: k for k, v in NB.items()}
CARR = lambda d: {'f16':'f32','bf16':'f32','fp8_e4m3':'f32','fp8_e5m2':'f32','int4':'i8','uint4':'u8'}.get(d, d)
F32=ir.FloatType(); F64=ir.DoubleType(); I1=ir.IntType(1); I64=ir.IntType(64)
def elt(d):
    return {'bool_':I1,'f32':F32,'f64':F64}.get(d) or ir.IntType(int(d[1:]))
def memt(d):
    return {'bool_':ir.IntType(8),'f32':F32,'f64':F64,'f16':ir.HalfType(),'bf16':ir.IntType(16),'int4':ir.IntType(8),'uint4':ir.IntType(8),'fp8_e4m3':ir.IntType(8),'fp8_e5m2':ir.IntType(8)}.get(d) or ir.IntType(int(d[1:]))
class Line(types.Type):
    def __init__(self, d, n): self.d, self.n = d, n; super().__init__(f'Line({d},{n})')
class Ptr(types.Type):
    def __init__(self, d, lanes=0): self.d, self.lanes = d, lanes; super().__init__(f'Ptr({d},{lanes})')
@register_model(Line)
class LM(models.PrimitiveModel):
    def __init__(s, dmm, fe): super().__init__(dmm, fe, ir.VectorType(elt(fe.d), fe.n))
@register_model(Ptr)
class PM(models.PrimitiveModel):
    def __init__(s, dmm, fe):
        t = memt(fe.d) if not fe.lanes else ir.VectorType(elt(fe.d), fe.lanes)
        super().__init__(dmm, fe, t.as_pointer())
def un(t): return types.unliteral(t)
def dn(t):
    t = un(t); return t.d if isinstance(t, Line) else REV[t]
def lanes_of(t): t=un(t); return t.n if isinstance(t, Line) else 0
def mk(d, n): return Line(d, n) if n else NB[d]
def vt(d, n): return ir.VectorType(elt(d), n) if n else elt(d)
def lit(t): return t.literal_value
def idx(ctx, b, t, v):
    return ctx.cast(b, v, t, types.int64)
def const(t, v):
    return ir.Constant(t, [v]*t.count) if isinstance(t, ir.VectorType) else ir.Constant(t, v)
def frommem(b, v, d, n):
    if d == 'f16': return b.fpext(v, vt('f32', n))
    if d == 'bf16':
        w = ir.VectorType(ir.IntType(32), n) if n else ir.IntType(32)
        return b.bitcast(b.shl(b.zext(v, w), const(w, 16)), vt('f32', n))
    if d == 'bool_':
        return b.icmp_unsigned('!=', v, const(v.type, 0)) if n else b.icmp_unsigned('!=', v, const(v.type, 0))
    return v
def tomem(b, v, d, n):
    if d == 'f16': return b.fptrunc(v, ir.VectorType(ir.HalfType(), n) if n else ir.HalfType())
    if d == 'bf16':
        w = ir.VectorType(ir.IntType(32), n) if n else ir.IntType(32)
        h = ir.VectorType(ir.IntType(16), n) if n else ir.IntType(16)
        i = b.bitcast(v, w); r = b.add(i, b.add(const(w, 0x7fff), b.and_(b.lshr(i, const(w, 16)), const(w, 1))))
        return b.trunc(b.lshr(r, const(w, 16)), h)
    if d == 'bool_': return b.zext(v, ir.VectorType(ir.IntType(8), n) if n else ir.IntType(8))
    return v
def boolfix(b, v, d, n, store=False):
    return v
@gi
def load(tc, p, i):
    sig = mk(CARR(p.d), p.lanes)(p, un(i))
    def cg(ctx, b, s, a):
        q = b.gep(a[0], [idx(ctx, b, s.args[1], a[1])]); v = b.load(q)
        return v if p.lanes else frommem(b, v, p.d, 0)
    return sig, cg
@gi
def store(tc, p, i, v):
    def cg(ctx, b, s, a):
        q = b.gep(a[0], [idx(ctx, b, s.args[1], a[1])])
        b.store(a[2] if p.lanes else tomem(b, a[2], p.d, 0), q); return ctx.get_dummy_value()
    return types.void(p, un(i), un(v)), cg
@gi
def load_if(tc, p, i, ok):
    sig = mk(CARR(p.d), p.lanes)(p, un(i), types.boolean)
    def cg(ctx, b, s, a):
        i = idx(ctx, b, s.args[1], a[1]); pred = b.block
        with b.if_then(a[2]):
            v = b.load(b.gep(a[0], [i])); v = v if p.lanes else frommem(b, v, p.d, 0); blk = b.block
        ph = b.phi(v.type); ph.add_incoming(v, blk); ph.add_incoming(ir.Constant(v.type, None) if not isinstance(v.type,(ir.FloatType,ir.DoubleType,ir.IntType)) else ir.Constant(v.type,0), pred); return ph
    return sig, cg
def vptr(b, p, i, d, n):
    return b.bitcast(b.gep(p, [i]), ir.VectorType(memt(d), n).as_pointer())
def size(d): return {'bool_':1,'f16':2,'bf16':2,'int4':1,'uint4':1,'fp8_e4m3':1,'fp8_e5m2':1}.get(d) or int(d[1:])//8
@gi
def load_line(tc, p, i, n):
    N = lit(n)
    def cg(ctx, b, s, a):
        v = b.load(vptr(b, a[0], idx(ctx, b, s.args[1], a[1]), p.d, N), align=size(p.d)); return frommem(b, v, p.d, N)
    return Line(CARR(p.d), N)(p, un(i), n), cg
@gi
def store_line(tc, p, i, v):
    N = v.n
    def cg(ctx, b, s, a):
        b.store(tomem(b, a[2], p.d, N), vptr(b, a[0], idx(ctx, b, s.args[1], a[1]), p.d, N), align=size(p.d)); return ctx.get_dummy_value()
    return types.void(p, un(i), v), cg
def part_mask(b, n, N):
    w = ir.VectorType(ir.IntType(64), N)
    return b.icmp_signed('<', ir.Constant(w, list(range(N))), splatv(b, n, N))
def splatv(b, s, n):
    t = ir.VectorType(s.type, n)
    v = b.insert_element(ir.Constant(t, ir.Undefined), s, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(v, ir.Constant(t, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), n), [0]*n))
def mangle(t):
    e = t.element; return f"v{t.count}" + ('f32' if isinstance(e, ir.FloatType) else 'f64' if isinstance(e, ir.DoubleType) else 'f16' if isinstance(e, ir.HalfType) else f'i{e.width}')
@gi
def load_line_part(tc, p, i, n, cnt):
    N = lit(n)
    def cg(ctx, b, s, a):
        i = idx(ctx, b, s.args[1], a[1]); c = idx(ctx, b, s.args[3], a[3])
        q = vptr(b, a[0], i, p.d, N); t = q.type.pointee
        full = b.icmp_signed('>=', c, ir.Constant(I64, N))
        with b.if_else(full, likely=True) as (th, el):
            with th:
                v1 = b.load(q, align=size(p.d)); b1 = b.block
            with el:
                fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(t, [q.type, ir.IntType(32), ir.VectorType(I1, N), t]), f"llvm.masked.load.{mangle(t)}.p0")
                v2 = b.call(fn, [q, ir.Constant(ir.IntType(32), size(p.d)), part_mask(b, c, N), ir.Constant(t, None)]); b2 = b.block
        ph = b.phi(t); ph.add_incoming(v1, b1); ph.add_incoming(v2, b2)
        return frommem(b, ph, p.d, N)
    return Line(CARR(p.d), N)(p, un(i), n, un(cnt)), cg
@gi
def store_line_part(tc, p, i, v, cnt):
    N = v.n
    def cg(ctx, b, s, a):
        i = idx(ctx, b, s.args[1], a[1]); c = idx(ctx, b, s.args[3], a[3])
        q = vptr(b, a[0], i, p.d, N); t = q.type.pointee; x = tomem(b, a[2], p.d, N)
        full = b.icmp_signed('>=', c, ir.Constant(I64, N))
        with b.if_else(full, likely=True) as (th, el):
            with th: b.store(x, q, align=size(p.d))
            with el:
                fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [t, q.type, ir.IntType(32), ir.VectorType(I1, N)]), f"llvm.masked.store.{mangle(t)}.p0")
                b.call(fn, [x, q, ir.Constant(ir.IntType(32), size(p.d)), part_mask(b, c, N)])
        return ctx.get_dummy_value()
    return types.void(p, un(i), v, un(cnt)), cg
@gi
def gather_line(tc, p, ix, m):
    def cg(ctx, b, s, a):
        N = ix.n; d = p.d; t = ir.VectorType(memt(d), N); acc = ir.Constant(t, None)
        for k in range(N):
            K = ir.Constant(ir.IntType(32), k); ok = b.extract_element(a[2], K); pred = b.block
            with b.if_then(ok):
                v = b.load(b.gep(a[0], [b.extract_element(a[1], K)])); nv = b.insert_element(acc, v, K); blk = b.block
            ph = b.phi(t); ph.add_incoming(nv, blk); ph.add_incoming(acc, pred); acc = ph
        return frommem(b, acc, d, N)
    return Line(CARR(p.d), ix.n)(p, ix, m), cg
@gi
def scatter_line(tc, p, ix, v, m):
    def cg(ctx, b, s, a):
        N = ix.n; x = tomem(b, a[2], p.d, N)
        for k in range(N):
            K = ir.Constant(ir.IntType(32), k)
            with b.if_then(b.extract_element(a[3], K)):
                b.store(b.extract_element(x, K), b.gep(a[0], [b.extract_element(a[1], K)]))
        return ctx.get_dummy_value()
    return types.void(p, ix, v, m), cg
@gi
def stack(tc, d, lanes, length):
    D, L, n = lit(d), lit(lanes), lit(length); t = Ptr(D, L)
    def cg(ctx, b, s, a):
        e = ir.VectorType(elt(D), L) if L else memt(D)
        q = cgutils.alloca_once(b, ir.ArrayType(e, n)); q.align = 64
        return b.gep(q, [ir.Constant(ir.IntType(32), 0)]*2)
    return t(d, lanes, length), cg
@gi
def splat(tc, v, n):
    N = lit(n); d = dn(v)
    def cg(ctx, b, s, a): return splatv(b, a[0], N)
    return Line(d, N)(un(v), n), cg
@gi
def iota(tc, d, n):
    N = lit(n); D = lit(d)
    return Line(D, N)(d, n), lambda ctx, b, s, a: ir.Constant(vt(D, N), list(range(N)))
@gi
def extract(tc, v, k):
    return NB[v.d](v, k), lambda ctx, b, s, a: b.extract_element(a[0], ir.Constant(ir.IntType(32), lit(k)))
@gi
def shuffle(tc, x, y, o):
    order = [int(q) for q in lit(o).split()]
    def cg(ctx, b, s, a):
        p, q = a[0], a[1]
        if x.n != y.n:
            m = max(x.n, y.n)
            def pad(v, n): return b.shuffle_vector(v, v, ir.Constant(ir.VectorType(ir.IntType(32), m), [min(k, n-1) for k in range(m)]))
            order2 = [k if k < x.n else k - x.n + m for k in order]
            return b.shuffle_vector(pad(p, x.n), pad(q, y.n), ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order2))
        return b.shuffle_vector(p, q, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))
    return Line(x.d, len(order))(x, y, o), cg
def isf(d): return d in ('f32', 'f64')
def sgn(d): return d[0] == 'i'
def bits(d): return 1 if d == 'bool_' else int(d[1:])
def conv(b, v, s, d, n):
    if s == d: return v
    T = vt(d, n)
    if d == 'bool_':
        return b.fcmp_unordered('!=', v, const(v.type, 0.0)) if isf(s) else b.icmp_unsigned('!=', v, const(v.type, 0))
    if s == 'bool_': return b.uitofp(v, T) if isf(d) else b.zext(v, T)
    if isf(s) and isf(d): return b.fpext(v, T) if bits(d) > bits(s) else b.fptrunc(v, T)
    if isf(d): return b.sitofp(v, T) if sgn(s) else b.uitofp(v, T)
    if isf(s):
        tn = mangle(T) if n else f'i{T.width}'; sn = mangle(v.type) if n else ('f32' if s == 'f32' else 'f64')
        fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(T, [v.type]), f"llvm.fpto{'s' if sgn(d) else 'u'}i.sat.{tn}.{sn}")
        return b.call(fn, [v])
    if bits(d) > bits(s): return b.sext(v, T) if sgn(s) else b.zext(v, T)
    if bits(d) < bits(s): return b.trunc(v, T)
    return v
def mkcast(D):
    @gi
    def f(tc, v):
        n = lanes_of(v); s = dn(v)
        return mk(D, n)(un(v)), lambda ctx, b, sg, a: conv(b, a[0], s, D, n)
    return f
for _d in NB: globals()[_d] = mkcast(_d)
@gi
def f16(tc, v):
    n = lanes_of(v); s = dn(v)
    def cg(ctx, b, sg, a):
        x = a[0] if isf(s) else conv(b, a[0], s, 'f64', n)
        H = ir.VectorType(ir.HalfType(), n) if n else ir.HalfType()
        return b.fpext(b.fptrunc(x, H), vt('f32', n))
    return mk('f32', n)(un(v)), cg
@gi
def bf16(tc, v):
    n = lanes_of(v); s = dn(v)
    def cg(ctx, b, sg, a):
        x = conv(b, a[0], s, 'f32', n); return frommem(b, tomem(b, x, 'bf16', n), 'bf16', n)
    return mk('f32', n)(un(v)), cg
def arith(b, op, x, y, d):
    if isf(d): return getattr(b, {'add':'fadd','sub':'fsub','mul':'fmul','truediv':'fdiv'}[op])(x, y)
    return getattr(b, {'add':'add','sub':'sub','mul':'mul','and_':'and_','or_':'or_','xor':'xor'}[op])(x, y)
def mkar(op):
    @gi
    def f(tc, x, y):
        d = dn(x); t = un(x)
        return t(t, t), lambda ctx, b, s, a: arith(b, op, a[0], a[1], d)
    return f
for _o in ('add','sub','mul','truediv','and_','or_','xor'): globals()[_o] = mkar(_o)
def mkop(pyop, op):
    @infer_global(pyop)
    class T(AbstractTemplate):
        def generic(self, args, kws):
            x, y = args
            if isinstance(x, Line) and x == y: return signature(x, x, y)
    lower_builtin(pyop, Line, Line)(lambda ctx, b, s, a: arith(b, op, a[0], a[1], s.args[0].d))
for _p, _o in ((operator.add,'add'),(operator.sub,'sub'),(operator.mul,'mul'),(operator.truediv,'truediv'),(operator.and_,'and_'),(operator.or_,'or_'),(operator.xor,'xor')): mkop(_p, _o)
def cmpv(b, o, x, y, d):
    if isf(d): return b.fcmp_unordered(o, x, y) if o == '!=' else b.fcmp_ordered(o, x, y)
    return b.icmp_signed(o, x, y) if sgn(d) else b.icmp_unsigned(o, x, y)
def mkcmp(pyop, o):
    @infer_global(pyop)
    class T(AbstractTemplate):
        def generic(self, args, kws):
            x, y = args
            if isinstance(x, Line) and x == y: return signature(Line('bool_', x.n), x, y)
    lower_builtin(pyop, Line, Line)(lambda ctx, b, s, a: cmpv(b, o, a[0], a[1], s.args[0].d))
for _p, _o in ((operator.lt,'<'),(operator.le,'<='),(operator.gt,'>'),(operator.ge,'>='),(operator.eq,'=='),(operator.ne,'!=')): mkcmp(_p, _o)
@gi
def neg(tc, x):
    d = dn(x); t = un(x)
    return t(t), lambda ctx, b, s, a: b.fneg(a[0]) if isf(d) else b.neg(a[0])
@gi
def not_(tc, x):
    t = un(x); return t(t), lambda ctx, b, s, a: b.not_(a[0])
inv = not_
@gi
def select(tc, m, x, y):
    t = un(x); return t(un(m), t, t), lambda ctx, b, s, a: b.select(a[0], a[1], a[2])
def sfx(t): return mangle(t) if isinstance(t, ir.VectorType) else ('f32' if isinstance(t, ir.FloatType) else 'f64' if isinstance(t, ir.DoubleType) else f'i{t.width}')
def mkintr(name, fl, it=None, k=1):
    @gi
    def f1(tc, x):
        t = un(x); 
        def cg(ctx, b, s, a):
            T = a[0].type; return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(T, [T]), f'llvm.{fl}.{sfx(T)}'), a)
        return t(t), cg
    @gi
    def f2(tc, x, y):
        t = un(x); d = dn(x)
        def cg(ctx, b, s, a):
            T = a[0].type; nm = fl if isf(d) else (it if sgn(d) else it.replace('s','u',1))
            return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(T, [T, T]), f'llvm.{nm}.{sfx(T)}'), a)
        return t(t, t), cg
    return f1 if k == 1 else f2
for _n,_l in (('tanh','exp'),('erf','exp')): globals()[_n]=mkintr(_n,_l)
for _n, _l in (('sqrt','sqrt'),('floor','floor'),('ceil','ceil'),('trunc','trunc'),('rint','rint'),('exp','exp'),('log','log'),('sin','sin'),('cos','cos')): globals()[_n] = mkintr(_n, _l)
minnum = mkintr('minnum','minnum','smin',2); maxnum = mkintr('maxnum','maxnum','smax',2)
minimum = mkintr('minimum','minimum','smin',2); maximum = mkintr('maximum','maximum','smax',2)
@gi
def fma(tc, x, y, z):
    t = un(x)
    def cg(ctx, b, s, a):
        T = a[0].type; return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(T, [T]*3), f'llvm.fma.{sfx(T)}'), a)
    return t(t, t, t), cg
def divmod_(which):
    @gi
    def f(tc, x, y):
        t = un(x); d = dn(x)
        def cg(ctx, b, s, a):
            u, v = a
            if isf(d):
                q = b.fdiv(u, v); fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(q.type, [q.type]), f'llvm.floor.{sfx(q.type)}'); q = b.call(fn, [q])
                return q if which == 'q' else b.fsub(u, b.fmul(q, v))
            z = b.icmp_unsigned('==', v, const(v.type, 0)); w = b.select(z, const(v.type, 1), v)
            if sgn(d):
                q = b.sdiv(u, w); r = b.srem(u, w)
                fix = b.and_(b.icmp_signed('!=', r, const(v.type, 0)), b.icmp_signed('<', b.xor(r, w), const(v.type, 0)))
                q = b.select(fix, b.sub(q, const(v.type, 1)), q); r = b.select(fix, b.add(r, w), r)
            else: q = b.udiv(u, w); r = b.urem(u, w)
            return b.select(z, const(v.type, 0), q if which == 'q' else r)
        return t(t, t), cg
    return f
floordiv = divmod_('q'); mod = divmod_('r')
def shift(left):
    @gi
    def f(tc, x, y):
        t = un(x); d = dn(x)
        def cg(ctx, b, s, a):
            u, v = a; W = bits(d); big = b.icmp_unsigned('>=', v, const(v.type, W)); c = b.select(big, const(v.type, W-1), v)
            if left: return b.select(big, const(v.type, 0), b.shl(u, c))
            if sgn(d): return b.ashr(u, c)
            return b.select(big, const(v.type, 0), b.lshr(u, c))
        return t(t, t), cg
    return f
shl = shift(True); shr = shift(False)
@gi
def absolute(tc, x):
    t = un(x); d = dn(x)
    def cg(ctx, b, s, a):
        T = a[0].type
        if isf(d): return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(T, [T]), f'llvm.fabs.{sfx(T)}'), a)
        return b.select(b.icmp_signed('<', a[0], const(T, 0)), b.neg(a[0]), a[0])
    return t(t), cg
def hsum(op):
    @gi
    def f(tc, v):
        def cg(ctx, b, s, a):
            parts = [b.extract_element(a[0], ir.Constant(ir.IntType(32), k)) for k in range(v.n)]
            while len(parts) > 1:
                nx = [op(b, parts[i], parts[i+1], v.d) for i in range(0, len(parts)-1, 2)]
                if len(parts) % 2: nx.append(parts[-1])
                parts = nx
            return parts[0]
        return NB[v.d](v), cg
    return f
line_sum = hsum(lambda b, x, y, d: arith(b, 'add', x, y, d)); line_prod = hsum(lambda b, x, y, d: arith(b, 'mul', x, y, d))
line_max = hsum(lambda b, x, y, d: b.select(cmpv(b, '>', x, y, d), x, y)); line_min = hsum(lambda b, x, y, d: b.select(cmpv(b, '<', x, y, d), x, y))
line_any = hsum(lambda b, x, y, d: b.or_(x, y)); line_all = hsum(lambda b, x, y, d: b.and_(x, y))
@gi
def isnan(tc, x):
    n=lanes_of(x); t=un(x)
    return mk('bool_',n)(t), lambda ctx,b,s,a: b.fcmp_unordered('uno',a[0],a[0])
@gi
def call_kernel(tc, fn, lo, hi, ar):
    def cg(ctx, b, s, a):
        ft = ir.FunctionType(ir.VoidType(), [I64]*3); b.call(b.inttoptr(a[0], ft.as_pointer()), a[1:]); return ctx.get_dummy_value()
    return types.void(*[types.int64]*4), cg
@gi
def take(tc, p):
    def cg(ctx, b, s, a): return b.atomic_rmw('add', b.inttoptr(a[0], I64.as_pointer()), ir.Constant(I64, 1), 'seq_cst')
    return types.int64(types.int64), cg
@gi
def bitcast(tc, x, d):
    n = lanes_of(x); D = lit(d)
    return mk(D, n)(un(x), d), lambda ctx, b, s, a: b.bitcast(a[0], vt(D, n))
__all__ = [k for k in list(globals()) if not k.startswith('_') and k not in ('operator','ir','types','cgutils','models')]
