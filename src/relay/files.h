/*
 * File requests. Every path is resolved beneath the place's root by the kernel (openat2), never by
 * looking at its text: links that lead out, "..", magic links and races between look and use all
 * end at the root. With the root "/" (whole_host) paths are absolute and links are followed within
 * it. Access is checked as the payload's user. Fifos, sockets and devices are described by stat and
 * refused by everything else, without ever being opened.
 *
 * A write goes to a file without a name (or a hidden one) in the same directory, is synced, and
 * takes the name at the end: after a crash there is the old or the new file. A link in the last
 * place of a path to be written is refused, not replaced and not followed.
 */
#pragma once

#include "relay/session.h"

void files_stat(struct session *s, const struct wire_message *m);
void files_list(struct session *s, const struct wire_message *m);
void files_read(struct session *s, const struct wire_message *m);
void files_write(struct session *s, const struct wire_message *m);
void files_mkdir(struct session *s, const struct wire_message *m);
void files_rename(struct session *s, const struct wire_message *m);
void files_remove(struct session *s, const struct wire_message *m);
void files_chmod(struct session *s, const struct wire_message *m);

/* Streams of FILE_READ and FILE_WRITE. Numbers that are none of them are ignored. */
void files_credit(struct session *s, uint32_t stream, uint32_t bytes);
void files_data(struct session *s, uint32_t stream, const uint8_t *data, uint32_t len, bool end);
void files_reset(struct session *s, uint32_t stream);
/* One stretch of file content into the connection; false when there is nothing to add. */
bool files_pump(struct session *s);
/* The session ends: open reads and writes are given up. */
void files_detach(struct session *s);
