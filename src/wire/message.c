#include "wire/message.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum kind { KIND_U32 = 1, KIND_U64, KIND_STR, KIND_BYTES, KIND_STRV, KIND_ID16, KIND_B32 };
#define KIND_MASK 0x7f
#define KIND_SKIPPABLE 0x80

#define NEED_REQ 1
#define NEED_OPT 0
#define NEED_ADDED 4
#define IS_REQUIRED 1
#define IS_ADDED 4

#define FIELD_HEADER 6
/* Ids are bits of the set of fields seen. */
#define FIELD_ID_MAX 31

struct field {
	uint8_t id;
	uint8_t kind;
	uint8_t need;
	uint16_t offset; /* in the message's struct */
	uint64_t bound;
	const char *name;
};

struct layout {
	uint8_t type;
	uint8_t count;
	uint16_t size;
	const char *name;
	const struct field *fields;
};

#define FIELD_ROW(id, kind, name, need, bound)                                                     \
	{ id, KIND_##kind, NEED_##need, offsetof(__typeof__(*shape), name), bound, #name },

/* `shape` lends FIELD_ROW the struct's type, since a field list takes one argument. */
#define M(NAME, name, type)                                                                        \
	static const struct field *fields_of_##name(const struct wire_##name *shape,               \
						    uint8_t *count)                                \
	{                                                                                          \
		(void)shape;                                                                       \
		static const struct field rows[] = { WIRE_FIELDS_##name(FIELD_ROW){ 0 } };         \
		*count = sizeof(rows) / sizeof(rows[0]) - 1;                                       \
		return rows;                                                                       \
	}
WIRE_MESSAGES(M)
#undef M

static bool layout_find(unsigned type, struct layout *out)
{
	switch (type) {
#define M(NAME, lower, number)                                                                     \
	case number:                                                                               \
		out->name = #lower;                                                                \
		out->size = sizeof(struct wire_##lower);                                           \
		out->fields = fields_of_##lower(NULL, &out->count);                                \
		break;
		WIRE_MESSAGES(M)
#undef M
	default:
		return false;
	}
	out->type = (uint8_t)type;
	return true;
}

static const struct field *field_find(const struct layout *layout, uint8_t id)
{
	for (uint8_t i = 0; i < layout->count; i++)
		if (layout->fields[i].id == id)
			return &layout->fields[i];
	return NULL;
}

struct raw_field {
	uint8_t id;
	uint8_t kind;
	bool skippable;
	const uint8_t *value;
	uint32_t len;
};

/* 1: one field, *pos moved behind it. 0: the end. -1: bytes that are no field. */
static int raw_next(const struct frame *frame, size_t *pos, struct raw_field *out)
{
	const uint8_t *p = frame->payload + *pos;
	size_t left = frame->length - *pos;

	if (left == 0)
		return 0;
	if (left < FIELD_HEADER)
		return -1;
	out->id = p[0];
	out->kind = p[1] & KIND_MASK;
	out->skippable = p[1] & KIND_SKIPPABLE;
	out->len = get_le32(p + 2);
	if (out->len > left - FIELD_HEADER)
		return -1;
	out->value = p + FIELD_HEADER;
	*pos += FIELD_HEADER + (size_t)out->len;
	return 1;
}

static bool is_wire_string(const struct raw_field *raw)
{
	return raw->len > 0 && memchr(raw->value, 0, raw->len) == raw->value + raw->len - 1;
}

static int refuse(const struct layout *layout, const char *field, const char *why,
		  struct error *err)
{
	return error_set(err, ERR_PROTOCOL, "%s.%s: %s", layout->name, field, why);
}

/* Vectors are counted first, so that one allocation of known size serves them. */
static int vectors_reserve(const struct layout *layout, const struct frame *frame,
			   struct wire_message *out, struct error *err)
{
	size_t used = 0;

	for (uint8_t i = 0; i < layout->count; i++) {
		const struct field *field = &layout->fields[i];
		struct wire_strv *strv = (void *)((char *)&out->ping + field->offset);
		struct raw_field raw;
		size_t pos = 0;
		uint64_t count = 0;

		if (field->kind != KIND_STRV)
			continue;
		while (raw_next(frame, &pos, &raw) > 0)
			count += raw.id == field->id;
		if (count > field->bound)
			return refuse(layout, field->name, "too many values", err);
		assert(used < WIRE_VECTORS_MAX);
		out->vectors[used] = xcalloc((size_t)count + 1, sizeof(char *));
		strv->v = out->vectors[used++];
	}
	return 0;
}

static int number_take(const struct layout *layout, const struct field *field, uint64_t value,
		       struct error *err)
{
	if (value > field->bound)
		return refuse(layout, field->name, "value out of range", err);
	return 0;
}

static int value_take(const struct layout *layout, const struct field *field,
		      const struct raw_field *raw, void *place, struct error *err)
{
	switch (field->kind) {
	case KIND_U32:
		if (raw->len != 4)
			return refuse(layout, field->name, "wrong size", err);
		*(uint32_t *)place = get_le32(raw->value);
		return number_take(layout, field, *(uint32_t *)place, err);
	case KIND_U64:
		if (raw->len != 8)
			return refuse(layout, field->name, "wrong size", err);
		*(uint64_t *)place = get_le64(raw->value);
		return number_take(layout, field, *(uint64_t *)place, err);
	case KIND_STR:
		if (!is_wire_string(raw) || raw->len - 1 > field->bound)
			return refuse(layout, field->name, "not a string of allowed length", err);
		*(const char **)place = (const char *)raw->value;
		return 0;
	case KIND_BYTES:
		if (raw->len > field->bound)
			return refuse(layout, field->name, "too long", err);
		*(struct wire_bytes *)place = (struct wire_bytes){ raw->value, raw->len };
		return 0;
	case KIND_STRV: {
		struct wire_strv *strv = place;

		if (!is_wire_string(raw))
			return refuse(layout, field->name, "not a string", err);
		((const char **)(uintptr_t)strv->v)[strv->count++] = (const char *)raw->value;
		return 0;
	}
	case KIND_ID16:
	case KIND_B32:
		if (raw->len != field->bound)
			return refuse(layout, field->name, "wrong size", err);
		memcpy(place, raw->value, raw->len);
		return 0;
	}
	return refuse(layout, field->name, "unknown kind", err);
}

static int fields_take(const struct layout *layout, const struct frame *frame,
		       struct wire_message *out, struct error *err)
{
	uint32_t seen = 0;
	size_t pos = 0;
	struct raw_field raw;
	int r;

	while ((r = raw_next(frame, &pos, &raw)) > 0) {
		const struct field *field = field_find(layout, raw.id);

		if (!field) {
			if (raw.skippable)
				continue;
			return refuse(layout, "?", "unknown field that may not be skipped", err);
		}
		if (raw.kind != field->kind)
			return refuse(layout, field->name, "wrong kind", err);
		if (field->kind != KIND_STRV && (seen & 1u << field->id))
			return refuse(layout, field->name, "given twice", err);
		seen |= 1u << field->id;
		if (value_take(layout, field, &raw, (char *)&out->ping + field->offset, err) < 0)
			return -1;
	}
	if (r < 0)
		return error_set(err, ERR_PROTOCOL, "%s: cut off", layout->name);
	for (uint8_t i = 0; i < layout->count; i++) {
		const struct field *field = &layout->fields[i];

		if ((field->need & IS_REQUIRED) && !(seen & 1u << field->id))
			return refuse(layout, field->name, "missing", err);
	}
	return 0;
}

int wire_decode(const struct frame *frame, struct wire_message *out, struct error *err)
{
	struct layout layout;

	memset(out, 0, sizeof(*out));
	if (!layout_find(frame->type, &layout))
		return error_set(err, ERR_PROTOCOL, "unknown message type 0x%02x", frame->type);
	if (frame->flags != 0)
		return refuse(&layout, "flags", "must be 0", err);
	out->type = frame->type;
	out->stream = frame->stream;
	if (vectors_reserve(&layout, frame, out, err) < 0 ||
	    fields_take(&layout, frame, out, err) < 0) {
		wire_message_clear(out);
		return -1;
	}
	return 0;
}

void wire_message_clear(struct wire_message *m)
{
	for (size_t i = 0; i < WIRE_VECTORS_MAX; i++)
		free(m->vectors[i]);
	memset(m, 0, sizeof(*m));
}

static void put_field(struct buf *out, const struct field *field, const void *value, size_t len)
{
	uint8_t kind = field->kind | (field->need & IS_ADDED ? KIND_SKIPPABLE : 0);
	uint8_t header[FIELD_HEADER] = { field->id, kind };

	put_le32(header + 2, (uint32_t)len);
	buf_append(out, header, sizeof(header));
	if (len > 0)
		buf_append(out, value, len);
}

/* Optional fields with no value stay off the wire: absent and zero mean the same. */
static int field_encode(struct buf *out, const struct field *field, const void *place, size_t start)
{
	bool required = field->need & IS_REQUIRED;
	uint8_t number[8];

	switch (field->kind) {
	case KIND_U32: {
		uint32_t v = *(const uint32_t *)place;

		put_le32(number, v);
		if (v || required)
			put_field(out, field, number, 4);
		return v <= field->bound ? 0 : -1;
	}
	case KIND_U64: {
		uint64_t v = *(const uint64_t *)place;

		put_le64(number, v);
		if (v || required)
			put_field(out, field, number, 8);
		return v <= field->bound ? 0 : -1;
	}
	case KIND_STR: {
		const char *s = *(const char *const *)place;
		size_t len = s ? strlen(s) : 0;

		if (!s && required)
			s = "";
		if (len > field->bound)
			return -1;
		if (s)
			put_field(out, field, s, len + 1);
		return 0;
	}
	case KIND_BYTES: {
		const struct wire_bytes *b = place;

		if (b->len > field->bound)
			return -1;
		if (b->len > 0 || required)
			put_field(out, field, b->data, b->len);
		return 0;
	}
	case KIND_STRV: {
		const struct wire_strv *strv = place;

		if (strv->count > field->bound || (strv->count == 0 && required))
			return -1;
		for (uint32_t i = 0; i < strv->count; i++) {
			size_t len = strlen(strv->v[i]);

			/* Stops early instead of copying megabytes that cannot be sent. */
			if (len >= WIRE_PAYLOAD_MAX || out->len - start > WIRE_FRAME_MAX)
				return -1;
			put_field(out, field, strv->v[i], len + 1);
		}
		return 0;
	}
	default:
		put_field(out, field, place, (size_t)field->bound);
		return 0;
	}
}

/* Takes back what was appended behind `start`: it may hold a key or an environment. */
static void retract(struct buf *out, size_t start)
{
	wipe(out->data + start, out->len - start);
	out->len = start;
	out->data[start] = 0;
}

int wire_encode(struct buf *out, uint32_t stream, enum wire_type type, const void *msg,
		struct error *err)
{
	size_t start = out->len;
	struct layout layout;
	size_t length;

	if (!layout_find(type, &layout))
		return error_set(err, ERR_INTERNAL, "no message has type %u", (unsigned)type);
	frame_begin(out, (uint8_t)type, 0, stream, 0);
	for (uint8_t i = 0; i < layout.count; i++) {
		const struct field *field = &layout.fields[i];

		if (field_encode(out, field, (const char *)msg + field->offset, start) == 0)
			continue;
		retract(out, start);
		return error_set(err, ERR_TOO_LARGE, "%s.%s: outside its bound", layout.name,
				 field->name);
	}
	length = out->len - start - WIRE_HEADER_SIZE;
	if (length > WIRE_PAYLOAD_MAX) {
		retract(out, start);
		return error_set(err, ERR_TOO_LARGE, "%s does not fit one frame", layout.name);
	}
	put_le32((uint8_t *)out->data + start, (uint32_t)length);
	return 0;
}

void wire_encode_error(struct buf *out, uint32_t stream, enum wire_error_code code, int errnum,
		       const char *fmt, ...)
{
	char text[256];
	struct wire_error e = {
		.code = code,
		.errnum = errnum > 0 ? (uint32_t)errnum : 0,
		.message = text,
	};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	wire_encode(out, stream, WIRE_ERROR, &e, NULL);
}
