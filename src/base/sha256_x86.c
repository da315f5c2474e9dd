#include "base/sha256_blocks.h"

#include <stdlib.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define LEAF1_SSSE3 (1U << 9)
#define LEAF1_SSE41 (1U << 19)
#define LEAF7_SHA (1U << 29)

bool sha256_x86_present(void)
{
	const unsigned wanted = LEAF1_SSSE3 | LEAF1_SSE41;
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & wanted) != wanted)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & LEAF7_SHA);
}

/* The instructions keep the eight words as (A, B, E, F) and (C, D, G, H). */
__attribute__((target("sha,sse4.1,ssse3"))) void sha256_blocks_x86(uint32_t state[8],
								   const uint8_t *data,
								   size_t count)
{
	const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
	__m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state);
	__m128i hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
	__m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
	__m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
	__m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
	__m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

	for (; count > 0; count--, data += SHA256_BLOCK) {
		__m128i abef_before = abef, cdgh_before = cdgh;
		__m128i w[4];

		for (int i = 0; i < 4; i++)
			w[i] = _mm_shuffle_epi8(
				_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)),
				big_endian);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m128i now = w[i & 3];
			__m128i sum = _mm_add_epi32(
				now,
				_mm_load_si128(
					(const __m128i *)(const void *)(sha256_constants + 4 * i)));

			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
			if (i < 12) {
				/* The four words of sixteen rounds on take the place of these. */
				__m128i last = w[(i + 3) & 3];
				__m128i next = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);

				next = _mm_add_epi32(next,
						     _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
				w[i & 3] = _mm_sha256msg2_epu32(next, last);
			}
		}
		abef = _mm_add_epi32(abef, abef_before);
		cdgh = _mm_add_epi32(cdgh, cdgh_before);
	}

	__m128i feba = _mm_shuffle_epi32(abef, 0x1b);
	__m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);

	_mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool sha256_x86_present(void)
{
	return false;
}

void sha256_blocks_x86(uint32_t state[8], const uint8_t *data, size_t count)
{
	(void)state;
	(void)data;
	(void)count;
	abort();
}
#endif
