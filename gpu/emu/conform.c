/* Holds the emulation's surface against NVIDIA's header: every prototype, enumerator and flag. Only
 * compiled, and only where the toolkit is. */
#include <cuda_runtime_api.h>
#include <stddef.h>

#define CALL(name, parameters)                                                                     \
    _Static_assert(_Generic(&name, cudaError_t(*) parameters : 1, default : 0),                    \
                   #name " has another prototype");
#include "gpu/emu/cudart.def"
#undef CALL

_Static_assert(_Generic(&cudaGetErrorName, const char *(*)(cudaError_t) : 1, default : 0),
               "cudaGetErrorName has another prototype");
_Static_assert(_Generic(&cudaGetErrorString, const char *(*)(cudaError_t) : 1, default : 0),
               "cudaGetErrorString has another prototype");
_Static_assert(_Generic((cudaHostFn_t)0, void (*)(void *) : 1, default : 0),
               "cudaHostFn_t is another type");

#define RESULT(name, value, text) _Static_assert(name == (value), #name " has another value");
#include "gpu/emu/result.def"
#undef RESULT

#define GROUP(tag)
#define VALUE(name, value) _Static_assert(name == (value), #name " has another value");
#define END
#include "gpu/emu/enum.def"
#undef GROUP
#undef VALUE
#undef END

#define FLAG(name, value) _Static_assert(name == (value), #name " has another value");
#include "gpu/emu/flag.def"
#undef FLAG
_Static_assert(CUDART_VERSION >= 13000, "the emulation has been held against CUDA 13.0 and later");

/* The members that our struct has, with their types. */
#define MEMBER(type, member, of)                                                                   \
    _Static_assert(_Generic(&((of *)0)->member, type * : 1, default : 0), #member " differs");
MEMBER(size_t, totalGlobalMem, struct cudaDeviceProp)
MEMBER(cudaUUID_t, uuid, struct cudaDeviceProp)
MEMBER(int, major, struct cudaDeviceProp)
MEMBER(int, minor, struct cudaDeviceProp)
MEMBER(int, multiProcessorCount, struct cudaDeviceProp)
MEMBER(int, integrated, struct cudaDeviceProp)
MEMBER(int, concurrentKernels, struct cudaDeviceProp)
MEMBER(int, ECCEnabled, struct cudaDeviceProp)
MEMBER(int, pciBusID, struct cudaDeviceProp)
MEMBER(int, pciDeviceID, struct cudaDeviceProp)
MEMBER(int, pciDomainID, struct cudaDeviceProp)
MEMBER(int, asyncEngineCount, struct cudaDeviceProp)
MEMBER(int, unifiedAddressing, struct cudaDeviceProp)
MEMBER(int, l2CacheSize, struct cudaDeviceProp)
MEMBER(int, streamPrioritiesSupported, struct cudaDeviceProp)
MEMBER(int, memoryPoolsSupported, struct cudaDeviceProp)
MEMBER(enum cudaMemAllocationType, allocType, struct cudaMemPoolProps)
MEMBER(enum cudaMemAllocationHandleType, handleTypes, struct cudaMemPoolProps)
MEMBER(struct cudaMemLocation, location, struct cudaMemPoolProps)
MEMBER(size_t, maxSize, struct cudaMemPoolProps)
