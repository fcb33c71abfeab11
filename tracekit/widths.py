"""How many bytes has one element of a type, by the names that profilers and logs give to types?

Names of ``c10::ScalarType`` (pytorch/pytorch, c10/core/ScalarType.h), of C++ (``c10::BFloat16``, ``long int``), of Python
(``torch.bfloat16``) and of NCCL (NVIDIA/nccl, src/nccl.h.in: ``ncclBfloat16``). A name that is not here has no known width,
and what depends on it is unknown; types of less than a byte are left out for that reason.
"""

from __future__ import annotations

_NAMES = {
    1: (
        "byte, char, bool, uint8, int8, uint8_t, int8_t, unsigned char, signed char, bits8, qint8, quint8, u8, i8, "
        "float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu, float8e4m3, float8e5m2, f8e4m3, f8e5m2"
    ),
    2: "short, half, bfloat16, float16, int16, uint16, int16_t, uint16_t, short int, unsigned short, bits16, bf16, f16, i16, u16",
    4: "int, float, float32, int32, uint32, int32_t, uint32_t, unsigned int, complexhalf, complex32, qint32, f32, i32, u32",
    8: "long, double, float64, int64, uint64, int64_t, uint64_t, long int, unsigned long, complexfloat, complex64, complex<float>, f64, i64, u64",
    16: "complexdouble, complex128, complex<double>",
}
_BYTES = {name: width for width, names in _NAMES.items() for name in names.split(", ")}
_PREFIXES = ("c10::", "torch.", "nccl")


def element_bytes(name: str | None) -> int | None:
    """Bytes per element; None where the name is unknown.

    >>> element_bytes("c10::BFloat16"), element_bytes("Float8_e4m3fn"), element_bytes("ncclInt64"), element_bytes("TensorList")
    (2, 1, 8, None)
    """
    if name is None:
        return None
    flat = name.strip()
    prefix = next((p for p in _PREFIXES if flat.startswith(p)), "")
    return _BYTES.get(flat.removeprefix(prefix).lower())
