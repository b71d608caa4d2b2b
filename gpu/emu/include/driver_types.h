/* The types of the emulated CUDA runtime: NVIDIA's names, only the members that Sluice uses. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum cudaError {
#define RESULT(name, value, text) name = value,
#include "gpu/emu/result.def"
#undef RESULT
};

#define GROUP(tag) enum tag {
#define VALUE(name, value) name = value,
#define END                                                                                        \
    }                                                                                              \
    ;
#include "gpu/emu/enum.def"
#undef GROUP
#undef VALUE
#undef END

enum {
#define FLAG(name, value) name = value,
#include "gpu/emu/flag.def"
#undef FLAG
};

#define CUDART_VERSION 13000

typedef enum cudaError cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef void (*cudaHostFn_t)(void *user_data);

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)

struct CUuuid_st {
    char bytes[16];
};
typedef struct CUuuid_st cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem;
    int major, minor;
    int multiProcessorCount;
    int integrated;
    int concurrentKernels;
    int ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID;
    int asyncEngineCount;
    int unifiedAddressing;
    int l2CacheSize;
    int streamPrioritiesSupported;
    int memoryPoolsSupported;
};

struct cudaMemLocation {
    enum cudaMemLocationType type;
    int id;
};

struct cudaMemPoolProps {
    enum cudaMemAllocationType allocType;
    enum cudaMemAllocationHandleType handleTypes;
    struct cudaMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize; /* 0: no limit but the device's */
    unsigned short usage;
    unsigned char reserved[54];
};
