#include "gpu/lanes/body.h"

#include <cuda.h>
#include <stdbool.h>

#include "gpu/base/cuda_error.h"

const struct sluice_cpu *const body_cpu = NULL;
const uint32_t body_streams_max = 256; /* 128 grids are resident */

typedef CUresult (*encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                              void *data, const cuuint64_t *sizes, const cuuint64_t *strides,
                              const cuuint32_t *box, const cuuint32_t *steps,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/* By its name: the module is not linked with the driver's library. Asked for each time, so that
 * nothing is kept; the runtime looks its table up. */
static encode_fn encode(void)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    return (encode_fn)found;
}

/* Whole numbers are copied, so their sign does not matter. */
static bool type_of(uint32_t dtype, CUtensorMapDataType *ret_type, uint32_t *ret_bytes)
{
    static const struct {
        CUtensorMapDataType type;
        uint32_t bytes;
    } types[] = {
        [SLUICE_BOOL] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [SLUICE_U8] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [SLUICE_U16] = {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2},
        [SLUICE_U32] = {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4},
        [SLUICE_U64] = {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8},
        [SLUICE_I8] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        [SLUICE_I16] = {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2},
        [SLUICE_I32] = {CU_TENSOR_MAP_DATA_TYPE_INT32, 4},
        [SLUICE_I64] = {CU_TENSOR_MAP_DATA_TYPE_INT64, 8},
        [SLUICE_F16] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2},
        [SLUICE_BF16] = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
        [SLUICE_F32] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4},
        [SLUICE_F64] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8},
    };
    if (dtype >= sizeof(types) / sizeof(types[0]) || types[dtype].bytes == 0)
        return false;
    *ret_type = types[dtype].type;
    *ret_bytes = types[dtype].bytes;
    return true;
}

static bool swizzle_of(uint32_t bytes, CUtensorMapSwizzle *ret_swizzle)
{
    static const struct {
        uint32_t bytes;
        CUtensorMapSwizzle swizzle;
    } swizzles[] = {{0, CU_TENSOR_MAP_SWIZZLE_NONE},
                    {32, CU_TENSOR_MAP_SWIZZLE_32B},
                    {64, CU_TENSOR_MAP_SWIZZLE_64B},
                    {128, CU_TENSOR_MAP_SWIZZLE_128B}};
    for (size_t i = 0; i < sizeof(swizzles) / sizeof(swizzles[0]); i++)
        if (swizzles[i].bytes == bytes) {
            *ret_swizzle = swizzles[i].swizzle;
            return true;
        }
    return false;
}

static int tensor_map(void *map, const struct sluice_matrix *matrix)
{
    const encode_fn call = encode();
    CUtensorMapDataType type;
    CUtensorMapSwizzle swizzle;
    uint32_t bytes;
    if (!call)
        return cudaErrorNotSupported;
    if (!type_of(matrix->dtype, &type, &bytes) || !swizzle_of(matrix->swizzle, &swizzle))
        return cudaErrorInvalidValue;
    const cuuint64_t sizes[] = {matrix->columns, matrix->rows};
    const cuuint64_t strides[] = {matrix->columns * bytes};
    const cuuint32_t box[] = {matrix->box_columns, matrix->box_rows}, steps[] = {1, 1};
    CUresult result = call(map, type, 2, (void *)(uintptr_t)matrix->data, sizes, strides, box,
                           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

static int ask(enum cudaDeviceAttr attribute, int device, uint32_t *ret, struct error *error)
{
    int value = 0;
    CUDA_TRY(cudaDeviceGetAttribute(&value, attribute, device), error);
    *ret = (uint32_t)value;
    return 0;
}

int body_open(struct sluice_cuda *room, const struct sluice_cuda **ret_cuda, struct error *error)
{
    int device = 0;
    CUDA_TRY(cudaGetDevice(&device), error);
    *room = (struct sluice_cuda){.tensor_map = tensor_map};
    int rc = ask(cudaDevAttrComputeCapabilityMajor, device, &room->major, error);
    if (!rc)
        rc = ask(cudaDevAttrComputeCapabilityMinor, device, &room->minor, error);
    if (!rc)
        rc = ask(cudaDevAttrMultiProcessorCount, device, &room->processors, error);
    if (!rc)
        rc = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, &room->shared_max, error);
    if (!rc)
        *ret_cuda = room;
    return rc;
}

void *body_address(void *device_pointer)
{
    return device_pointer;
}
