"""A tensor that exports its memory by DLPack, for types that NumPy does not have."""

import ctypes as c

get = c.pythonapi.PyCapsule_New
get.restype = c.py_object
get.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]

CPU = (1, 0)
BFLOAT16 = (4, 16, 1)
FLOAT32 = (2, 32, 1)


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", c.c_int32 * 2),
        ("axes", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class Managed(c.Structure):
    _fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class Versioned(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("context", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", Tensor),
    ]


class Exporter:
    """Elements in a bytearray."""

    def __init__(
        self, memory, dtype, shape, strides=None, device=CPU, version=(1, 0), flags=0, offset=0
    ):
        self.memory, self.device, self.version = memory, device, version
        self.start = (c.c_char * len(memory)).from_buffer(memory)
        self.shape = (c.c_int64 * len(shape))(*shape)
        self.strides = (c.c_int64 * len(shape))(*strides) if strides else None
        tensor = Tensor(c.addressof(self.start), device, len(shape), *dtype, self.shape)
        tensor.strides = self.strides
        tensor.byte_offset = offset
        if version is None:
            self.managed = Managed(tensor)
        else:
            self.managed = Versioned(*version, None, None, flags, tensor)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.version is None and options:
            raise TypeError("an old exporter has no options")
        name = b"dltensor" if self.version is None else b"dltensor_versioned"
        capsule = get(c.addressof(self.managed), name, None)
        return capsule
