/*
 * Logging to stderr, one line per event: time, level, message, then key=value pairs in the message
 * itself. Control characters and newlines in the message are escaped, so a hostile string cannot
 * forge a line. Nothing secret is ever passed here.
 */
#pragma once

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };

void log_set_level(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_debug(...) log_write(LOG_DEBUG_, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO_, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN_, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR_, __VA_ARGS__)
