// A stand-in for ACL's acl.h, ours: only what the emitted step uses, as the makers document it.
#pragma once
#include <cstddef>
#include <cstdint>

typedef int aclError;
typedef uint16_t aclFloat16;
typedef void *aclrtStream;
struct aclTensorDesc;
struct aclDataBuffer;
struct aclopAttr;

static const int ACL_SUCCESS = 0;

enum aclDataType { ACL_DT_UNDEFINED = -1, ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT32 = 3, ACL_BOOL = 12 };
enum aclFormat { ACL_FORMAT_ND = 2 };
enum aclrtMemcpyKind { ACL_MEMCPY_DEVICE_TO_DEVICE = 3 };
enum aclopEngineType { ACL_ENGINE_SYS };

extern "C" {
size_t aclDataTypeSize(aclDataType type);
aclTensorDesc *aclCreateTensorDesc(aclDataType type, int num_dims, const int64_t *dims, aclFormat format);
void aclDestroyTensorDesc(const aclTensorDesc *description);
aclDataBuffer *aclCreateDataBuffer(void *data, size_t num_bytes);
aclError aclDestroyDataBuffer(const aclDataBuffer *buffer);
aclopAttr *aclopCreateAttr();
void aclopDestroyAttr(const aclopAttr *attributes);
aclError aclopSetAttrBool(aclopAttr *attributes, const char *name, uint8_t value);
aclError aclopSetAttrInt(aclopAttr *attributes, const char *name, int64_t value);
aclError aclopSetAttrFloat(aclopAttr *attributes, const char *name, float value);
aclError aclopSetAttrString(aclopAttr *attributes, const char *name, const char *value);
aclError aclopCast(const aclTensorDesc *from, const aclDataBuffer *from_data, const aclTensorDesc *to,
                   aclDataBuffer *to_data, uint8_t truncate, aclrtStream stream);
aclError aclrtMemcpy2dAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream);
}
