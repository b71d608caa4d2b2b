/* Matrix products of four warps (sm_90a). They run by themselves: registers and shared memory that
 * a product uses are left alone between wgmma_begin() and the wgmma_wait() that covers it. */
#pragma once

#include "gpu/kernels/common/mma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* An operand in shared memory with rows of 128 bytes, swizzled: 16-byte unit u of row r is at
 * u ^ (r % 8); groups of eight rows are 1024 bytes apart. `lead` is the distance, in bytes, from 64
 * columns to the next 64, where the operand runs along its columns (V); unused otherwise. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t lead)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 | 64ull << 32 |
           1ull << 62;
}

__device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* The compiler may not move what touches these registers across this place. */
template <int COUNT> __device__ __forceinline__ void wgmma_hold(float (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(c[i])::"memory");
}

/* Registers of an instruction's text, and what they are. */
#define WGMMA_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WGMMA_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_24 WGMMA_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WGMMA_32 WGMMA_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_48 WGMMA_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_56 WGMMA_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_64 WGMMA_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_80                                                                                   \
    WGMMA_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_88 WGMMA_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WGMMA_96                                                                                   \
    WGMMA_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                   \
             "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_112                                                                                  \
    WGMMA_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_128                                                                                  \
    WGMMA_112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_AT8(c, i)                                                                            \
    "+f"((c)[i]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3]), "+f"((c)[(i) + 4]),  \
        "+f"((c)[(i) + 5]), "+f"((c)[(i) + 6]), "+f"((c)[(i) + 7])
#define WGMMA_C8(c) WGMMA_AT8(c, 0)
#define WGMMA_C16(c) WGMMA_AT8(c, 0), WGMMA_AT8(c, 8)
#define WGMMA_C24(c) WGMMA_C16(c), WGMMA_AT8(c, 16)
#define WGMMA_C32(c) WGMMA_AT8(c, 0), WGMMA_AT8(c, 8), WGMMA_AT8(c, 16), WGMMA_AT8(c, 24)
#define WGMMA_C48(c) WGMMA_C32(c), WGMMA_AT8(c, 32), WGMMA_AT8(c, 40)
#define WGMMA_C56(c) WGMMA_C48(c), WGMMA_AT8(c, 48)
#define WGMMA_C64(c) WGMMA_C56(c), WGMMA_AT8(c, 56)
#define WGMMA_C80(c) WGMMA_C64(c), WGMMA_C16(c + 64)
#define WGMMA_C88(c) WGMMA_C80(c), WGMMA_AT8(c, 80)
#define WGMMA_C96(c)                                                                               \
    WGMMA_C64(c), WGMMA_AT8(c, 64), WGMMA_AT8(c, 72), WGMMA_AT8(c, 80), WGMMA_AT8(c, 88)
#define WGMMA_C112(c) WGMMA_C96(c), WGMMA_AT8(c, 96), WGMMA_AT8(c, 104)
#define WGMMA_C128(c) WGMMA_C112(c), WGMMA_AT8(c, 112), WGMMA_AT8(c, 120)
#define WGMMA_TEXT(columns)                                                                        \
    "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." HALF_PTX "." HALF_PTX " {"

/* c = a b, + c where `add`, of numbers of 8 bits, 32 along k: both in shared memory along it. */
#define WGMMA_4 "%0,%1,%2,%3"
#define WGMMA_C4(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define WGMMA_EIGHT(registers, outputs, a_number, b_number, add_number, columns)                   \
    __device__ __forceinline__ void wgmma_eight(float(&c)[registers], uint64_t a, uint64_t b,      \
                                                int add)                                           \
    {                                                                                              \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add_number                          \
                     ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns                             \
                     "k32.f32.e4m3.e4m3 {" WGMMA_##registers "}, %" #a_number ", %" #b_number      \
                                                             ", add, 1, 1;\n}\n"                   \
                     : outputs                                                                     \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
WGMMA_EIGHT(4, WGMMA_C4(c), 4, 5, 6, "8")
WGMMA_EIGHT(8, WGMMA_C8(c), 8, 9, 10, "16")
WGMMA_EIGHT(16, WGMMA_C16(c), 16, 17, 18, "32")
WGMMA_EIGHT(32, WGMMA_C32(c), 32, 33, 34, "64")
WGMMA_EIGHT(64, WGMMA_C64(c), 64, 65, 66, "128")

namespace HALF
{

/* c (64 rows, twice as many columns as it has registers; thread layout of mma_half's c, 16 rows
 * per warp) = a b, + c where `add`: a in shared memory along k, b along k. Operands of the text are
 * numbers: behind those of c come a, b and add. */
#define WGMMA_MULTIPLY(registers, b_number, add_number, columns)                                   \
    __device__ __forceinline__ void wgmma_multiply(float(&c)[registers], uint64_t a, uint64_t b,   \
                                                   int add)                                        \
    {                                                                                              \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add_number                          \
                     ", 0;\n" WGMMA_TEXT(columns) WGMMA_##registers                                \
                     "}, %" #registers ", %" #b_number ", add, 1, 1, 0, 0;\n}\n"                   \
                     : WGMMA_C##registers(c)                                                       \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
WGMMA_MULTIPLY(8, 9, 10, "16")
WGMMA_MULTIPLY(16, 17, 18, "32")
WGMMA_MULTIPLY(24, 25, 26, "48")
WGMMA_MULTIPLY(32, 33, 34, "64")
WGMMA_MULTIPLY(48, 49, 50, "96")
WGMMA_MULTIPLY(56, 57, 58, "112")
WGMMA_MULTIPLY(64, 65, 66, "128")
WGMMA_MULTIPLY(80, 81, 82, "160")
WGMMA_MULTIPLY(88, 89, 90, "176")
WGMMA_MULTIPLY(96, 97, 98, "192")
WGMMA_MULTIPLY(112, 113, 114, "224")
WGMMA_MULTIPLY(128, 129, 130, "256")

/* c += a b: a in registers (layout of mma_half's a), b in shared memory along its columns. */
__device__ __forceinline__ void wgmma_values_step(float (&c)[64], uint32_t a0, uint32_t a1,
                                                  uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile(WGMMA_TEXT("128") WGMMA_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
                 : WGMMA_C64(c)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ void wgmma_values_step(float (&c)[32], uint32_t a0, uint32_t a1,
                                                  uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile(WGMMA_TEXT("64") WGMMA_32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
                 : WGMMA_C32(c)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

/* c = a b, + c where `add`: a in registers (layout of mma_half's a), b in shared memory along k. */
#define WGMMA_REGISTERS(registers, a0, a1, a2, a3, b_number, add_number, columns)                  \
    __device__ __forceinline__ void wgmma_registers(float(&c)[registers], const uint32_t(&a)[4],   \
                                                    uint64_t b, int add)                           \
    {                                                                                              \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add_number                          \
                     ", 0;\n" WGMMA_TEXT(columns) WGMMA_##registers "}, {%" #a0 ",%" #a1 ",%" #a2  \
                                                                    ",%" #a3 "}, %" #b_number      \
                                                                    ", add, 1, 1, 0;\n}\n"         \
                     : WGMMA_C##registers(c)                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));              \
    }
WGMMA_REGISTERS(16, 16, 17, 18, 19, 20, 21, "32")
WGMMA_REGISTERS(24, 24, 25, 26, 27, 28, 29, "48")
WGMMA_REGISTERS(32, 32, 33, 34, 35, 36, 37, "64")
WGMMA_REGISTERS(48, 48, 49, 50, 51, 52, 53, "96")
WGMMA_REGISTERS(64, 64, 65, 66, 67, 68, 69, "128")
WGMMA_REGISTERS(128, 128, 129, 130, 131, 132, 133, "256")

} // namespace HALF

#endif
