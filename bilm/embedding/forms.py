"""The forms of vectors, which `bilm embed --help` lists without importing NumPy or h5py."""

FORMATS = {".parquet": "parquet", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}  # by ending
HELP = {  # how Python reads each format
    "parquet": "a row per sentence, with a column of vectors per layer: pandas.read_parquet(FILE)",
    "npz": 'one array, numpy.load(FILE)["vectors"]; without --pool also "offsets": the rows of\n'
    "               sentence i are vectors[offsets[i] : offsets[i + 1]]; and the ids",
    "hdf5": "one dataset per sentence, named 0, 1, 2, ... or by ids: bilm.read_embeddings(FILE)",
}
PARTS = ".parts"  # ending of the folder, beside an output, that contains its finished parts
POOLS = ("none", "mean", "max")  # `collecting` implements them
