"""Programs as files: versioned plain data, the same for every version of Python, checked when it is read.

    container     header, directory and checksums; tables of integers, texts and bytes
    schema        the tables of a program, and what each column counts or points to
    write, read   a program image, its code and its constants to bytes and back
    description   the inputs, outputs and metadata of a model, for the session that opens the program

docs/program-format.md has the layout byte by byte.
"""
