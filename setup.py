"""Maps the top-level folders backends/, nn/ and quant/ to cubepy.backends, cubepy.nn and cubepy.quant."""

from setuptools import find_packages, setup

MAPPED = ("backends", "nn", "quant")

packages = find_packages(include=["cubepy", "cubepy.*"])
for part in MAPPED:
    packages.append(f"cubepy.{part}")
    packages.extend(f"cubepy.{part}.{name}" for name in find_packages(part))

setup(packages=packages, package_dir={f"cubepy.{part}": part for part in MAPPED})
