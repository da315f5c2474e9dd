/* The two ways through SHA-256's blocks, apart so that tests can take each: see base/sha256.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BLOCK 64

/* Of the rounds, four of them at a time for the instructions. */
extern const uint32_t sha256_constants[64] __attribute__((aligned(16)));

void sha256_blocks_portable(uint32_t state[8], const uint8_t *data, size_t count);
/* By the SHA extensions of x86; false where this processor has none. */
bool sha256_x86_present(void);
/* Only where they are present. */
void sha256_blocks_x86(uint32_t state[8], const uint8_t *data, size_t count);
