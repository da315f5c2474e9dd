#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"

static const struct {
	const char *wire;
	int http;
} codes[] = { [ERR_NONE] = { "none", 200 },
#define X(name, wire, http) [name] = { wire, http },
	      ERROR_CODES(X)
#undef X
};

static enum error_code known_code(enum error_code code)
{
	return (unsigned)code < ERR_COUNT ? code : ERR_INTERNAL;
}

/* A message that was cut must stay valid UTF-8, or nobody could put it into JSON. */
static void mend_cut(char *text, size_t size, int wanted)
{
	if (wanted < 0) {
		text[0] = '\0';
	} else if ((size_t)wanted >= size) {
		size_t len = size - 1;

		text[len - utf8_partial_tail(text, len)] = '\0';
	}
}

static void format_message(char *out, size_t size, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
static void format_message(char *out, size_t size, const char *fmt, va_list ap)
{
	mend_cut(out, size, vsnprintf(out, size, fmt, ap));
}

/*
 * Only here is an error filled; the text was made before, as its arguments may lie in the old one.
 */
static int replace(struct error *err, enum error_code code, int errnum, const char *message)
{
	error_clear(err);
	err->code = code;
	err->errnum = errnum;
	memcpy(err->message, message, strlen(message) + 1);
	return -1;
}

int error_setv(struct error *err, enum error_code code, const char *fmt, va_list ap)
{
	char message[sizeof(err->message)];

	if (!err)
		return -1;
	format_message(message, sizeof(message), fmt, ap);
	return replace(err, code, 0, message);
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	error_setv(err, code, fmt, ap);
	va_end(ap);
	return -1;
}

int error_errno(struct error *err, int errnum, const char *fmt, ...)
{
	bool full = errnum == ENOSPC || errnum == EDQUOT;
	char message[sizeof(err->message)], reason[80];
	va_list ap;

	if (!err)
		return -1;
	/* The reason is what one needs most, so a long message gives way to it. */
	snprintf(reason, sizeof(reason), ": %s", strerror(errnum));
	va_start(ap, fmt);
	format_message(message, sizeof(message) - strlen(reason), fmt, ap);
	va_end(ap);
	strncat(message, reason, sizeof(message) - strlen(message) - 1);
	return replace(err, full ? ERR_DISK_FULL : ERR_IO, errnum, message);
}

int error_wrap(struct error *err, const char *fmt, ...)
{
	char context[sizeof(err->message)], message[sizeof(err->message)];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	format_message(context, sizeof(context), fmt, ap);
	va_end(ap);

	size_t len = strlen(context), room = sizeof(message) - 1;

	/* Both halves stay readable: the context takes at most half of the message. */
	if (len + 2 + strlen(err->message) > room && len > room / 2) {
		len = room / 2;
		len -= utf8_partial_tail(context, len);
	}
	mend_cut(message, sizeof(message),
		 snprintf(message, sizeof(message), "%.*s: %s", (int)len, context, err->message));
	memcpy(err->message, message, strlen(message) + 1);
	return -1;
}

int error_recode(struct error *err, enum error_code code)
{
	if (err)
		err->code = code;
	return -1;
}

void error_set_details(struct error *err, char *json_text)
{
	if (!err) {
		free(json_text);
		return;
	}
	free(err->details);
	err->details = json_text;
}

void error_clear(struct error *err)
{
	if (!err)
		return;
	free(err->details);
	*err = (struct error){ .code = ERR_NONE };
}

void error_move(struct error *to, struct error *from)
{
	if (!from || to == from)
		return;
	if (!to) {
		error_clear(from);
		return;
	}
	free(to->details);
	*to = *from;
	*from = (struct error){ .code = ERR_NONE };
}

const char *error_code_name(enum error_code code)
{
	return codes[known_code(code)].wire;
}

enum error_code error_code_from_name(const char *name)
{
	for (unsigned i = ERR_NONE + 1; name && i < ERR_COUNT; i++) {
		if (streq(codes[i].wire, name))
			return (enum error_code)i;
	}
	return ERR_INTERNAL;
}

int error_http_status(enum error_code code)
{
	return codes[known_code(code)].http;
}
