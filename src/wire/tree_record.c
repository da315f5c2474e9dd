#include "wire/tree_record.h"

#include <assert.h>

/* What every record of a kind has at least, and at most. */
static const struct bounds {
	uint32_t min, max;
} bounds[RECORD_KINDS] = {
	[RECORD_ENTRY] = { 1, RECORD_MAX },
	[RECORD_NONE] = { 1, 4095 },
	[RECORD_CONTENT] = { 1, RECORD_MAX },
	[RECORD_HOLE] = { 8, 8 },
	[RECORD_ENDED] = { 1, RECORD_MAX },
	[RECORD_CHANGED] = { 1, RECORD_MAX },
	[RECORD_TICK] = { 0, 0 },
	[RECORD_DONE] = { 0, 0 },
	[RECORD_FAILED] = { 8, 520 },
	[RECORD_PATH] = { 1, 4095 },
	[RECORD_PUT] = { 1, RECORD_MAX },
	[RECORD_SKIP] = { 0, 0 },
	[RECORD_REMOVE] = { 1, 4095 },
	[RECORD_FINISH] = { 0, 0 },
};

int wire_record_parse_header(const uint8_t *data, struct record *out, struct error *err)
{
	uint32_t length = get_le32(data);
	uint8_t kind = data[4];

	if (kind == 0 || kind == 14 || kind >= RECORD_KINDS)
		return error_set(err, ERR_PROTOCOL, "a record of the unknown kind %u",
				 (unsigned)kind);
	if (length < bounds[kind].min || length > bounds[kind].max)
		return error_set(err, ERR_PROTOCOL, "a record of kind %u with %u bytes",
				 (unsigned)kind, (unsigned)length);
	*out = (struct record){ .kind = kind, .length = length };
	return 0;
}

int wire_record_parse(const uint8_t *data, size_t len, struct record *out, size_t *used,
		      struct error *err)
{
	if (len < RECORD_HEADER_SIZE)
		return 0;
	if (wire_record_parse_header(data, out, err) < 0)
		return -1;
	if (len - RECORD_HEADER_SIZE < out->length)
		return 0;
	out->payload = data + RECORD_HEADER_SIZE;
	*used = RECORD_HEADER_SIZE + (size_t)out->length;
	return 1;
}

size_t wire_record_begin(struct buf *out, enum record_kind kind)
{
	uint8_t header[RECORD_HEADER_SIZE] = { [4] = (uint8_t)kind };
	size_t start = out->len;

	buf_append(out, header, sizeof(header));
	return start;
}

void wire_record_end(struct buf *out, size_t start)
{
	size_t length = out->len - start - RECORD_HEADER_SIZE;

	assert(length <= RECORD_MAX);
	put_le32((uint8_t *)out->data + start, (uint32_t)length);
}

void wire_record_append(struct buf *out, enum record_kind kind, const void *payload, size_t length)
{
	size_t start = wire_record_begin(out, kind);

	if (length > 0)
		buf_append(out, payload, length);
	wire_record_end(out, start);
}
