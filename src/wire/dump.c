/*
 * Names of everything on the wire, and the dumper that makes a frame readable.
 */
#include "wire/message.h"

#include <string.h>

#define DUMP_VALUE_MAX 200

/* Names of fields and which of them are secret, by message and id. */
struct shown_field {
	uint8_t type;
	uint8_t id;
	bool secret;
	const char *name;
};

#define SECRET_REQ false
#define SECRET_OPT false
#define SECRET_REQ_SECRET true
#define SECRET_OPT_SECRET true
#define SECRET_ADDED false

static const char *const kind_names[] = {
	"?", "U32", "U64", "STR", "BYTES", "STRV", "ID16", "B32"
};

const char *wire_type_name(unsigned type)
{
	switch (type) {
	case WIRE_DATA:
		return "data";
	case WIRE_OUTPUT:
		return "output";
#define M(NAME, name, number)                                                                      \
	case number:                                                                               \
		return #name;
		WIRE_MESSAGES(M)
#undef M
	}
	return NULL;
}

#define SHOW(number, text, is_secret)                                                              \
	case number:                                                                               \
		*out = (struct shown_field){ .id = number, .secret = is_secret, .name = text };    \
		return true;
#define SHOW_ROW(id, kind, name, need, bound) SHOW(id, #name, SECRET_##need)
#define M(NAME, name, number)                                                                      \
	static bool show_##name(uint8_t id, struct shown_field *out)                               \
	{                                                                                          \
		(void)out;                                                                         \
		switch (id) {                                                                      \
			WIRE_FIELDS_##name(SHOW_ROW)                                               \
		}                                                                                  \
		return false;                                                                      \
	}
WIRE_MESSAGES(M)
#undef M

static bool shown_find(unsigned type, uint8_t id, struct shown_field *out)
{
	switch (type) {
#define M(NAME, name, number)                                                                      \
	case number:                                                                               \
		return show_##name(id, out);
		WIRE_MESSAGES(M)
#undef M
	}
	return false;
}

static void dump_text(struct buf *out, const uint8_t *value, uint32_t len)
{
	buf_putc(out, '"');
	for (uint32_t i = 0; i < MIN_OF(len, DUMP_VALUE_MAX); i++) {
		if (value[i] >= 0x20 && value[i] < 0x7f && value[i] != '"' && value[i] != '\\')
			buf_putc(out, (char)value[i]);
		else
			buf_printf(out, "\\x%02x", value[i]);
	}
	buf_puts(out, len > DUMP_VALUE_MAX ? "\"..." : "\"");
}

static void dump_value(struct buf *out, const char *kind, const uint8_t *value, uint32_t len)
{
	if (strcmp(kind, "U32") == 0 && len == 4)
		buf_printf(out, "%lu", (unsigned long)get_le32(value));
	else if (strcmp(kind, "U64") == 0 && len == 8)
		buf_printf(out, "%llu", (unsigned long long)get_le64(value));
	else if (strncmp(kind, "STR", 3) == 0 && len > 0)
		dump_text(out, value, len - 1);
	else
		for (uint32_t i = 0; i < MIN_OF(len, 32); i++)
			buf_printf(out, "%02x", value[i]);
}

static void dump_fields(const struct frame *frame, struct buf *out)
{
	size_t pos = 0;

	while (frame->length - pos >= 6) {
		const uint8_t *p = frame->payload + pos;
		uint32_t len = get_le32(p + 2);
		uint8_t kind = p[1] & 0x7f;
		struct shown_field shown;

		if (len > frame->length - pos - 6)
			break;
		pos += 6 + (size_t)len;
		if (!shown_find(frame->type, p[0], &shown)) {
			buf_printf(out, " field-%u=(%lu bytes)", p[0], (unsigned long)len);
			continue;
		}
		buf_printf(out, " %s=", shown.name);
		if (shown.secret)
			buf_printf(out, "(%lu bytes)", (unsigned long)len);
		else
			dump_value(out, kind_names[kind < ARRAY_SIZE(kind_names) ? kind : 0], p + 6,
				   len);
	}
	if (pos != frame->length)
		buf_puts(out, " (cut off)");
}

void wire_dump(const struct frame *frame, struct buf *out)
{
	const char *name = wire_type_name(frame->type);

	if (name)
		buf_puts(out, name);
	else
		buf_printf(out, "type-0x%02x", frame->type);
	buf_printf(out, " stream=%lu", (unsigned long)frame->stream);
	if (frame->flags)
		buf_printf(out, " flags=0x%02x", frame->flags);
	if (!name || frame->type == WIRE_DATA || frame->type == WIRE_OUTPUT)
		buf_printf(out, " (%lu bytes)", (unsigned long)frame->length);
	else
		dump_fields(frame, out);
}

#define NAME_OF(function, table)                                                                   \
	const char *function(uint32_t value)                                                       \
	{                                                                                          \
		static const char *const names[] = { table(TEXT) };                                \
		return value < ARRAY_SIZE(names) ? names[value] : "unknown";                       \
	}
#define TEXT(name, text) text,
NAME_OF(wire_reason_name, WIRE_REASONS)
NAME_OF(wire_exec_state_name, WIRE_EXEC_STATES)
NAME_OF(wire_place_state_name, WIRE_PLACE_STATES)
NAME_OF(wire_place_kind_name, WIRE_PLACE_KINDS)
NAME_OF(wire_file_type_name, WIRE_FILE_TYPES)
#undef TEXT
#define TEXT(name, text, code) text,
NAME_OF(wire_error_name, WIRE_ERRORS)
#undef TEXT

enum error_code wire_error_meaning(uint32_t code)
{
	static const enum error_code meanings[] = {
#define X(name, text, meaning) meaning,
		WIRE_ERRORS(X)
#undef X
	};

	return code < ARRAY_SIZE(meanings) ? meanings[code] : ERR_PROTOCOL;
}
