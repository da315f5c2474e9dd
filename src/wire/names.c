/* Names of what is on the wire, and what its errors mean to the server. */
#include "wire/message.h"

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

#define NAME_OF(function, table)                                                                   \
	const char *function(uint32_t value)                                                       \
	{                                                                                          \
		static const char *const names[] = { table(TEXT) };                                \
		return value < ARRAY_SIZE(names) ? names[value] : "unknown";                       \
	}
#define TEXT(name, text) text,
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
