"""How Python itself runs: interpreters are started, libraries are imported, threads wait and take turns."""
