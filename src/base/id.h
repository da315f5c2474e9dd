/*
 * Identifiers and random bytes. An identifier is a UUID of version 7 as lower-case text: the time
 * in milliseconds, then 74 random bits. Those made one after another lie side by side, so that the
 * indexes of rows made together share their pages, however many came before. They are names, not
 * secrets.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define ID_SIZE 37

void random_bytes(void *out, size_t len); /* getrandom; aborts if the kernel cannot */
void id_new(char out[ID_SIZE]);
bool id_is_ordered(const char *s); /* one of ours: of version 7 */
bool id_is_valid(const char *s);   /* 8-4-4-4-12 hex, any case, any version; NULL is not */
void id_copy(char out[ID_SIZE], const char *s); /* NULL or "" -> ""; longer text is cut */
static inline bool id_is_set(const char *id)
{
	return id && id[0];
}
/* The machine's boot id (or "unknown"): tells that everything running before a reboot is gone. */
void boot_id(char out[ID_SIZE]);
