#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/text.h"

#define MESSAGE_SIZE 4096
#define REQUEST_SIZE 40

static atomic_int lowest_level = LOG_INFO_;
static atomic_int format = LOG_TEXT;
static atomic_int log_fd = STDERR_FILENO;
static char file_path[PATH_MAX]; /* set by main before other threads exist */
static _Thread_local char request[REQUEST_SIZE];

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

bool log_level_parse(const char *text, enum log_level *level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_words); i++)
		if (streq(level_words[i], text)) {
			*level = (enum log_level)i;
			return true;
		}
	return false;
}

void log_set_format(enum log_format wanted)
{
	atomic_store(&format, (int)wanted);
}

bool log_wants(enum log_level level)
{
	return (int)level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

void log_set_request(const char *id)
{
	snprintf(request, sizeof(request), "%s", id ? id : "");
}

/*
 * The number of the descriptor stays: dup3 puts the new file in the place of the old one in one
 * step, so that a thread in the middle of a line writes to one of the two and never to neither.
 */
int log_reopen(void)
{
	int fd, current = atomic_load(&log_fd);

	if (!file_path[0])
		return 0;
	fd = open(file_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0)
		return -errno;
	if (current == STDERR_FILENO) {
		atomic_store(&log_fd, fd);
		return 0;
	}

	int r = dup3(fd, current, O_CLOEXEC) < 0 ? -errno : 0;

	close(fd);
	return r;
}

int log_to_file(const char *path)
{
	if (strlen(path) >= sizeof(file_path))
		return -ENAMETOOLONG;
	snprintf(file_path, sizeof(file_path), "%s", path);

	int r = log_reopen();

	if (r < 0)
		file_path[0] = '\0';
	return r;
}

/* Bytes of the character at p; 0 when there is no valid one. */
static size_t utf8_length(const unsigned char *p)
{
	size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

	return utf8_valid((const char *)p, strnlen((const char *)p, n)) ? n : 0;
}

static void put_hex(struct buf *out, const char *before, unsigned char byte)
{
	static const char hex[] = "0123456789abcdef";

	buf_puts(out, before);
	buf_putc(out, hex[byte >> 4]);
	buf_putc(out, hex[byte & 15]);
}

/*
 * A terminal obeys C0 controls, DEL, and the C1 controls that UTF-8 writes as C2 80..9F and older
 * ones as single bytes; a reader of the log obeys newlines. None of them passes. As JSON, bytes
 * that are no UTF-8 are told as the Latin-1 characters of the same number.
 */
static void escape(struct buf *out, const char *text, bool json)
{
	const unsigned char *p = (const unsigned char *)text;

	for (; *p; p++) {
		size_t character = utf8_length(p);
		bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f;

		if (*p == '\n' || *p == '\t' || *p == '\r') {
			buf_putc(out, '\\');
			buf_putc(out, *p == '\n' ? 'n' : *p == '\t' ? 't' : 'r');
		} else if (json && (*p == '"' || *p == '\\')) {
			buf_putc(out, '\\');
			buf_putc(out, (char)*p);
		} else if (*p < 0x20 || *p == 0x7f || c1 || !character) {
			p += c1;
			put_hex(out, json ? "\\u00" : "\\x", *p);
		} else {
			buf_append(out, p, character);
			p += character - 1;
		}
	}
}

/* Bare where that is clear, else in quotes: a value must not look like the next field. */
static void put_text_value(struct buf *out, const char *text)
{
	bool bare = *text && !text[strcspn(text, " \"=\t\r\n")];

	if (bare) {
		escape(out, text, false);
		return;
	}
	buf_putc(out, '"');
	escape(out, text, true);
	buf_putc(out, '"');
}

static void put_text_line(struct buf *out, enum log_level level, const char *when,
			  const char *message, const struct log_field *fields, size_t count)
{
	buf_printf(out, "%s %-5s ", when, level_words[level]);
	escape(out, message, false);
	for (size_t i = 0; i < count; i++) {
		buf_printf(out, " %s=", fields[i].key);
		if (fields[i].text)
			put_text_value(out, fields[i].text);
		else
			buf_printf(out, "%lld", (long long)fields[i].number);
	}
	if (request[0])
		buf_printf(out, " request=%s", request);
}

static void put_json_text(struct buf *out, const char *key, const char *text)
{
	buf_printf(out, ",\"%s\":\"", key);
	escape(out, text, true);
	buf_putc(out, '"');
}

static void put_json_line(struct buf *out, enum log_level level, const char *when,
			  const char *message, const struct log_field *fields, size_t count)
{
	buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\"", when, level_words[level]);
	put_json_text(out, "message", message);
	if (request[0])
		put_json_text(out, "requestId", request);
	for (size_t i = 0; i < count; i++) {
		if (fields[i].text)
			put_json_text(out, fields[i].key, fields[i].text);
		else
			buf_printf(out, ",\"%s\":%lld", fields[i].key, (long long)fields[i].number);
	}
	buf_putc(out, '}');
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields,
		size_t count)
{
	int saved = errno;
	_cleanup_buf_ struct buf line = { 0 };
	char when[TIME_ISO_SIZE];
	struct timespec ts;

	if (!log_wants(level))
		return;
	/* People compare these times with other programs' logs: the wall clock, jumps and all. */
	clock_gettime(CLOCK_REALTIME, &ts);
	time_iso((int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000, when);
	if (atomic_load_explicit(&format, memory_order_relaxed) == LOG_JSON)
		put_json_line(&line, level, when, message, fields, count);
	else
		put_text_line(&line, level, when, message, fields, count);
	buf_putc(&line, '\n');
	/* One call per line, so that lines of several threads never mix. */
	while (write(atomic_load(&log_fd), line.data, line.len) < 0 && errno == EINTR)
		;
	errno = saved;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	if (!log_wants(level))
		return;

	int saved = errno;
	char message[MESSAGE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	int wanted = vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (wanted < 0)
		message[0] = '\0';
	else if ((size_t)wanted >= sizeof(message))
		memcpy(message + sizeof(message) - 4, "...", 4);
	errno = saved;
	log_fields(level, message, NULL, 0);
}
