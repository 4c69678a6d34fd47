// A stand-in for ACL's acl_op_compiler.h, ours: only what the emitted step uses.
#pragma once
#include "acl.h"

enum aclopCompileType { ACL_COMPILE_SYS };

extern "C" aclError aclopCompileAndExecute(
    const char *kind, int num_inputs, const aclTensorDesc *const inputs[], const aclDataBuffer *const input_data[],
    int num_outputs, const aclTensorDesc *const outputs[], aclDataBuffer *const output_data[],
    const aclopAttr *attributes, aclopEngineType engine, aclopCompileType compile, const char *path, aclrtStream stream);
