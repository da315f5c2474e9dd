/*
 * A byte stream as either side receives it: frames cut out of it, each decoded or refused.
 */
#include <stddef.h>
#include <stdint.h>
#include "wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame frame;
	size_t used;

	while (frame_parse(data, size, WIRE_PAYLOAD_MAX, &frame, &used, NULL) > 0) {
		_cleanup_wire_message_ struct wire_message m = { 0 };

		wire_decode(&frame, &m, NULL);
		data += used;
		size -= used;
	}
	return 0;
}
