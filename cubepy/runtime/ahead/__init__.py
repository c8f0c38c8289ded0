"""What happens before a kernel can run: saying that one compiles, compiling ahead, sending the
cache elsewhere.
"""
