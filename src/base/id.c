#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/text.h"

void random_bytes(void *out, size_t len)
{
	unsigned char *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		/* Identifiers and keys that can be guessed are worse than no program. */
		if (n <= 0)
			abort();
		p += n;
		len -= (size_t)n;
	}
}

void id_new(char out[ID_SIZE])
{
	unsigned char b[16];
	struct timespec now;
	char hex[33];

	random_bytes(b, sizeof(b));
	clock_gettime(CLOCK_REALTIME, &now);

	uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;

	/* Twelve bits of the millisecond's fraction: lists order what has the same time by id. */
	uint64_t fraction = (uint64_t)now.tv_nsec % 1000000 * 4096 / 1000000;

	for (int i = 0; i < 6; i++)
		b[i] = (unsigned char)(ms >> (40 - 8 * i));
	b[6] = (unsigned char)(fraction >> 8 | 0x70);
	b[7] = (unsigned char)fraction;
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	hex_encode(hex, b, sizeof(b));
	snprintf(out, ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
		 hex + 20);
}

bool id_is_valid(const char *s)
{
	if (!s)
		return false;
	for (int i = 0; i < ID_SIZE - 1; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool hex = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f') ||
			   (s[i] >= 'A' && s[i] <= 'F');

		if (dash ? s[i] != '-' : !hex)
			return false;
	}
	return s[ID_SIZE - 1] == '\0';
}

bool id_is_ordered(const char *s)
{
	return id_is_valid(s) && s[14] == '7';
}

void id_copy(char out[ID_SIZE], const char *s)
{
	size_t len = s ? strnlen(s, ID_SIZE - 1) : 0;

	if (len)
		memmove(out, s, len);
	out[len] = '\0';
}

void boot_id(char out[ID_SIZE])
{
	char text[ID_SIZE] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		ssize_t n = read(fd, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		close(fd);
	}
	id_copy(out, id_is_valid(text) ? text : "unknown");
}
