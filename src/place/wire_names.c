/* Between the words of records and the words of the wire. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "place/places.h"

static const struct {
	enum exec_reason record;
	enum wire_reason wire;
} reasons[] = {
	{ EXEC_EXITED, REASON_EXITED },       { EXEC_SIGNALLED, REASON_SIGNALLED },
	{ EXEC_TIMEOUT, REASON_TIMEOUT },     { EXEC_OOM, REASON_OOM },
	{ EXEC_CANCELLED, REASON_CANCELLED }, { EXEC_LEASE_LOST, REASON_LEASE_LOST },
};

enum exec_reason reason_from_wire(uint32_t reason)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].wire == reason)
			return reasons[i].record;
	return EXEC_LEASE_LOST;
}

enum wire_reason reason_to_wire(enum exec_reason reason)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].record == reason)
			return reasons[i].wire;
	return REASON_CANCELLED;
}

bool exec_wire_id(const char *text, uint8_t out[WIRE_ID_SIZE])
{
	char hex[2 * WIRE_ID_SIZE + 1];
	size_t len = 0;

	if (!id_is_valid(text))
		return false;
	for (; *text; text++)
		if (*text != '-')
			hex[len++] = *text;
	hex[len] = 0;
	return hex_decode(out, hex, WIRE_ID_SIZE);
}

void exec_text_id(const uint8_t id[WIRE_ID_SIZE], char out[ID_SIZE])
{
	char hex[2 * WIRE_ID_SIZE + 1];

	hex_encode(hex, id, WIRE_ID_SIZE);
	snprintf(out, ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
		 hex + 20);
}

void signal_name(int number, char out[16])
{
	const char *name = number > 0 ? sigabbrev_np(number) : NULL;

	out[0] = 0;
	if (name)
		snprintf(out, 16, "SIG%s", name);
	else if (number > 0)
		snprintf(out, 16, "SIG%d", number);
}
