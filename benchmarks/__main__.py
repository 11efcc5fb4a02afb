import sys

if sys.argv[1:2] == ["compiler"]:
    from benchmarks.compiler import main as compiler

    compiler(sys.argv[2:])
else:
    from benchmarks.run import main

    main()
