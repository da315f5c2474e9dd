#include "record/kinds.h"

#include <stddef.h>
#include <string.h>

static const char *word_at(const char *const *words, size_t count, size_t index)
{
	return index < count ? words[index] : "unknown";
}

static bool word_find(const char *const *words, const char *text, unsigned *index)
{
	if (!text)
		return false;
	for (unsigned i = 0; words[i]; i++) {
		if (strcmp(words[i], text) == 0) {
			*index = i;
			return true;
		}
	}
	return false;
}

#define WORD_(c_name, wire) [c_name] = wire,
#define KIND_DEFINE_(kind, table)                                                                  \
	const char *const kind##_names[] = { table(WORD_) NULL };                                  \
	const char *kind##_name(enum kind value)                                                   \
	{                                                                                          \
		size_t count = sizeof(kind##_names) / sizeof(kind##_names[0]) - 1;                 \
		return word_at(kind##_names, count, (size_t)value);                                \
	}                                                                                          \
	bool kind##_parse(const char *text, enum kind *value)                                      \
	{                                                                                          \
		unsigned index;                                                                    \
		if (!word_find(kind##_names, text, &index))                                        \
			return false;                                                              \
		*value = (enum kind)index;                                                         \
		return true;                                                                       \
	}
KINDS(KIND_DEFINE_)
