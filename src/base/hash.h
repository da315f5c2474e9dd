/*
 * SHA-256 through libcrypto. Not for the relay or the keeper, which link no library.
 */
#pragma once

#include <stddef.h>

#define SHA256_HEX_SIZE 65
void sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE]);
