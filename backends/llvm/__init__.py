"""What the compiled backends share: the ops of generated code as LLVM IR, and the printing of
programs.
"""
