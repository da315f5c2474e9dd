/*
 * Logging, one line per event: time, level, message, fields. As text for people, or as one JSON
 * object a line for programs; to stderr, or to a file that can be moved away and opened anew.
 * Control characters and newlines are escaped, so a hostile string cannot forge a line. Nothing
 * secret is ever passed here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };
enum log_format { LOG_TEXT, LOG_JSON };

void log_set_level(enum log_level level);
bool log_level_parse(const char *text, enum log_level *level); /* debug, info, warn, error */
void log_set_format(enum log_format format);
bool log_wants(enum log_level level); /* before work that only a log line needs */

/*
 * Lines go to the file from here on; 0 or a negative errno, and then nothing changes. Reopening
 * makes the file again after somebody has moved it (SIGHUP); without a file it does nothing.
 */
int log_to_file(const char *path);
int log_reopen(void);

/* The request that this thread works for; on every line it writes until cleared with NULL. */
void log_set_request(const char *id);

/* A value beside the message, for those who filter. */
struct log_field {
	const char *key;  /* plain letters */
	const char *text; /* NULL: the number counts */
	int64_t number;
};
#define LOG_TEXT_FIELD(k, t) ((struct log_field){ .key = (k), .text = (t) ? (t) : "" })
#define LOG_INT_FIELD(k, n) ((struct log_field){ .key = (k), .number = (n) })

void log_fields(enum log_level level, const char *message, const struct log_field *fields,
		size_t count);
#define log_with(level, message, ...)                                                              \
	log_fields(level, message, (const struct log_field[]){ __VA_ARGS__ },                      \
		   sizeof((const struct log_field[]){ __VA_ARGS__ }) / sizeof(struct log_field))

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_debug(...) log_write(LOG_DEBUG_, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO_, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN_, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR_, __VA_ARGS__)
