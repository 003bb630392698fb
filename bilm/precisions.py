"""The dtypes of the inputs of matrix multiplications, by name; other values are float32."""

PRECISIONS = ("float32", "bfloat16")
INFERENCE_PRECISIONS = (*PRECISIONS, "int8")
