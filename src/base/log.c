#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/text.h"

#define MESSAGE_SIZE 4096

static atomic_int lowest_level = LOG_INFO_;

static const char *const level_words[] = {
	[LOG_DEBUG_] = "debug",
	[LOG_INFO_] = "info",
	[LOG_WARN_] = "warn",
	[LOG_ERROR_] = "error",
};

void log_set_level(enum log_level level)
{
	atomic_store(&lowest_level, (int)level);
}

/* Bytes of the character at p; 0 when there is no valid one. */
static size_t utf8_length(const unsigned char *p)
{
	size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

	return utf8_valid((const char *)p, strnlen((const char *)p, n)) ? n : 0;
}

/*
 * A terminal obeys C0 controls, DEL, and the C1 controls that UTF-8 writes as C2 80..9F and older
 * ones as single bytes; a reader of the log obeys newlines. None of them passes.
 */
static size_t escape(char *out, const char *message)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *p = (const unsigned char *)message;
	size_t n = 0;

	for (; *p; p++) {
		size_t character = utf8_length(p);
		bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f;

		if (*p == '\n' || *p == '\t' || *p == '\r') {
			out[n++] = '\\';
			out[n++] = *p == '\n' ? 'n' : *p == '\t' ? 't' : 'r';
		} else if (*p < 0x20 || *p == 0x7f || c1 || !character) {
			p += c1;
			out[n++] = '\\';
			out[n++] = 'x';
			out[n++] = hex[*p >> 4];
			out[n++] = hex[*p & 15];
		} else {
			memcpy(out + n, p, character);
			n += character;
			p += character - 1;
		}
	}
	return n;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
		return;

	int saved = errno;
	char message[MESSAGE_SIZE], line[TIME_ISO_SIZE + 8 + 4 * MESSAGE_SIZE + 1];
	char when[TIME_ISO_SIZE];
	struct timespec ts;
	va_list ap;

	va_start(ap, fmt);
	int wanted = vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (wanted < 0)
		message[0] = '\0';
	else if ((size_t)wanted >= sizeof(message))
		memcpy(message + sizeof(message) - 4, "...", 4);

	/* People compare these times with other programs' logs: the wall clock, jumps and all. */
	clock_gettime(CLOCK_REALTIME, &ts);
	time_iso((int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000, when);

	size_t n = (size_t)snprintf(line, sizeof(line), "%s %-5s ", when, level_words[level]);

	n += escape(line + n, message);
	line[n++] = '\n';
	/* One call per line, so that lines of several threads never mix. */
	while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
		;
	errno = saved;
}
