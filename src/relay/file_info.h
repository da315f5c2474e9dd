#pragma once

#include <sys/stat.h>
#include "wire/message.h"

#define FILE_TAG_SIZE 80

/* Identity and content as far as a stat can tell; equal tags mean that nobody wrote in between. */
void file_tag(const struct stat *st, char out[FILE_TAG_SIZE]);
/* `tag` lends its memory to the message. Name and target are left for the caller. */
void file_describe(const struct stat *st, char tag[FILE_TAG_SIZE], struct wire_file_info *out);
