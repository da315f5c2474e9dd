/*
 * One message of the type in the first byte. What decodes must encode again, and decode to the same
 * bytes the second time: nothing is accepted that could not have been sent. The hello functions of
 * both sides take the same bytes.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "wire/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reencode(const struct wire_message *m, struct buf *out)
{
	if (wire_encode(out, m->stream, m->type, &m->ping, NULL) < 0)
		abort();
}

static void try_hello(const struct frame *frame)
{
	static const uint8_t key[HELLO_KEY_SIZE] = { 1 };
	_cleanup_buf_ struct buf out = { 0 };
	struct hello h = { 0 };

	hello_challenge(&h, key, "place", 0, frame, &out, NULL);
	/* Without the key no bytes prove anything. */
	if (hello_verify(&h, key, frame, NULL) == 0 ||
	    hello_answer(&h, key, frame, &out, NULL) == 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_wire_message_ struct wire_message first = { 0 }, second = { 0 };
	_cleanup_buf_ struct buf once = { 0 }, twice = { 0 };
	struct frame frame;
	size_t used;

	if (size < 1 || size > WIRE_PAYLOAD_MAX)
		return 0;
	frame = (struct frame){ .type = data[0],
				.payload = data + 1,
				.length = (uint32_t)size - 1 };
	try_hello(&frame);
	if (wire_decode(&frame, &first, NULL) < 0)
		return 0;
	reencode(&first, &once);
	if (frame_parse((const uint8_t *)once.data, once.len, WIRE_PAYLOAD_MAX, &frame, &used,
			NULL) != 1 ||
	    wire_decode(&frame, &second, NULL) < 0)
		abort();
	reencode(&second, &twice);
	if (once.len != twice.len || memcmp(once.data, twice.data, once.len) != 0)
		abort();
	return 0;
}
