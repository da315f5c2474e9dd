/*
 * Memory that cannot fail, and ownership that can be seen.
 *
 * Small allocations abort on exhaustion: a server that has lost its heap cannot keep its promises,
 * and its durable state is made to survive exactly that. Sizes that come from outside are checked
 * against a limit before they reach these functions.
 */
#pragma once

#include <stddef.h>
#include <stdlib.h>

void *xmalloc(size_t size);
/*
 * Beginning with a page, for content of files. Large memory of malloc begins just behind the
 * beginning of one, where some processors take four times as long to copy whole pages to.
 */
void *xmalloc_pages(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *ptr, size_t size);
void *xreallocarray(void *ptr, size_t count, size_t size);
char *xstrdup(const char *s); /* NULL in, NULL out */
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Writes zeros that the compiler may not remove; for secrets. */
void wipe(void *ptr, size_t size);

static inline void free_ptr(void *p)
{
	free(*(void **)p);
}

/* `_cleanup_(fn)` runs fn(&variable) when the variable goes out of scope, on every path. */
#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(free_ptr)

/* Moves ownership out of a variable, leaving NULL behind: its cleanup then does nothing. */
#define steal(ptr)                                                                                 \
	({                                                                                         \
		__typeof__(ptr) *_p = &(ptr);                                                      \
		__typeof__(ptr) _v = *_p;                                                          \
		*_p = NULL;                                                                        \
		_v;                                                                                \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))

/* NULL-terminated string vectors (argv, envp). */
char **strv_copy(char *const *v);
void strv_free(char **v);
size_t strv_len(char *const *v);
void strv_push(char ***v, char *s); /* takes ownership of s */
static inline void strv_freep(char ***v)
{
	strv_free(*v);
}
#define _cleanup_strv_ _cleanup_(strv_freep)
