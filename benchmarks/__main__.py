import os
import sys

from benchmarks import compiler, run

# the table of the compiler in full has options of its own
if sys.argv[1:2] == ["compiler"] and any(a.startswith(("--runs", "--layers", "--no-peer")) for a in sys.argv[2:]):
    compiler.main(sys.argv[2:])
elif sys.argv[1:2] == ["cliffs"]:
    # read when PyTorch is imported: its threads would spin into our turns, and for each other on a busy machine
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from benchmarks.cliffs.run import main

    main(sys.argv[2:])
elif sys.argv[1:2] == ["count"]:
    from benchmarks.count.run import main

    main(sys.argv[2:])
elif sys.argv[1:2] == ["export"]:
    from benchmarks.export import main

    main(sys.argv[2:])
else:
    run.main()
