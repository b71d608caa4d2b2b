#include "gpu/kernels/common/memory_map.cuh"
#include "gpu/kernels/common/tensor_map.cuh"

typedef decltype(&cuTensorMapEncodeTiled) encode_fn;

/* The driver's function, by its name: the module is not linked with the driver's library. */
static encode_fn find()
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    return reinterpret_cast<encode_fn>(found);
}

static encode_fn encode()
{
    static const encode_fn found = find();
    return found;
}

bool tensor_map_can()
{
    return encode() != NULL;
}

cudaError_t tensor_map(CUtensorMap *map, const void *data, enum dtype dtype, uint32_t rows,
                       uint32_t k, uint32_t stride, uint32_t box_rows)
{
    cuuint64_t sizes[] = {k, rows}, strides[] = {(cuuint64_t)stride * 2};
    cuuint32_t box[] = {64, box_rows}, steps[] = {1, 1};
    CUresult result = encode()(
        map,
        dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
        const_cast<void *>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t tensor_map_bytes(CUtensorMap *map, const void *data, uint32_t rows, uint32_t bytes,
                             uint32_t stride, uint32_t box_bytes, uint32_t box_rows)
{
    cuuint64_t sizes[] = {bytes, rows}, strides[] = {stride};
    cuuint32_t box[] = {box_bytes, box_rows}, steps[] = {1, 1};
    CUresult result =
        encode()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(data), sizes, strides,
                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t tensor_map_halves(CUtensorMap *map, const void *data, uint32_t matrices, uint32_t rows,
                              uint32_t bytes, uint32_t box_rows)
{
    cuuint64_t sizes[] = {bytes, 8, 2, rows / 16, matrices};
    cuuint64_t strides[] = {bytes, (cuuint64_t)bytes * (rows / 2), (cuuint64_t)bytes * 8,
                            (cuuint64_t)bytes * rows};
    cuuint32_t box[] = {128, 8, 2, box_rows / 16, 1}, steps[] = {1, 1, 1, 1, 1};
    CUresult result =
        encode()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<void *>(data), sizes, strides,
                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t tensor_map_memory(CUtensorMap *map, enum dtype dtype, uint32_t columns,
                              uint32_t box_rows)
{
    const cuuint64_t part = (cuuint64_t)1 << MEMORY_PART_SHIFT, row = (cuuint64_t)columns * 2;
    cuuint64_t sizes[] = {64, part / row, columns / 64, (cuuint64_t)1 << (48 - MEMORY_PART_SHIFT)};
    cuuint64_t strides[] = {row, 128, part};
    cuuint32_t box[] = {64, box_rows, 1, 1}, steps[] = {1, 1, 1, 1};
    CUresult result = encode()(
        map,
        dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
        NULL, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
