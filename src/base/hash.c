#include "base/hash.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include "base/text.h"

void sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int digest_len = 0;

	if (!EVP_Digest(data, len, digest, &digest_len, EVP_sha256(), NULL) ||
	    digest_len != (SHA256_HEX_SIZE - 1) / 2)
		abort();
	hex_encode(out, digest, digest_len);
}
