#include "wire/frame.h"

int frame_parse(const uint8_t *data, size_t len, uint32_t max_payload, struct frame *out,
		size_t *used, struct error *err)
{
	uint32_t length;

	if (len < WIRE_HEADER_SIZE)
		return 0;
	length = get_le32(data);
	if (length > MIN_OF(max_payload, WIRE_PAYLOAD_MAX))
		return error_set(err, ERR_PROTOCOL, "a frame of %u bytes is above the limit of %u",
				 (unsigned)length, (unsigned)max_payload);
	if (len - WIRE_HEADER_SIZE < length)
		return 0;
	*out = (struct frame){
		.type = data[4],
		.flags = data[5],
		.stream = get_le32(data + 6),
		.payload = data + WIRE_HEADER_SIZE,
		.length = length,
	};
	*used = WIRE_HEADER_SIZE + (size_t)length;
	return 1;
}

void frame_begin(struct buf *out, uint8_t type, uint8_t flags, uint32_t stream, uint32_t length)
{
	uint8_t header[WIRE_HEADER_SIZE];

	put_le32(header, length);
	header[4] = type;
	header[5] = flags;
	put_le32(header + 6, stream);
	buf_append(out, header, sizeof(header));
}

void frame_append(struct buf *out, uint8_t type, uint8_t flags, uint32_t stream,
		  const void *payload, uint32_t length)
{
	frame_begin(out, type, flags, stream, length);
	if (length > 0)
		buf_append(out, payload, length);
}

void frame_amend(struct buf *out, size_t start, uint8_t flags)
{
	uint8_t *header = (uint8_t *)out->data + start;

	put_le32(header, (uint32_t)(out->len - start - WIRE_HEADER_SIZE));
	header[5] = flags;
}
