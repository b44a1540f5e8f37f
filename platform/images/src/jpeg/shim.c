// Decodes a region of a JPEG image with libjpeg-turbo, and returns errors instead of leaving the program.
//
// libjpeg reports an error by a call that must not return. longjmp leaves it, and may only pass frames
// of C: so every call of libjpeg stands in a function of this file that called setjmp. Nothing of an image
// is kept for the next: the library would decode one that lacks tables with those of the one before.
//
// Order of calls: begin, then rows, for one image.

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#if LIBJPEG_TURBO_VERSION_NUMBER < 3000000 || LIBJPEG_TURBO_VERSION_NUMBER >= 4000000 || \
    JPEG_LIB_VERSION != 62
#error "compare struct jpeg_entropy_decoder and min_DCT_scaled_size with jpegint.h and jpeglib.h of this version"
#endif

// The beginning of what jpegint.h declares, which is not installed. It is the same in each libjpeg since
// 6b, and lets another entropy decoder take the place of the library's.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr jpeg);
  boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
};

// As platform/images/src/jpeg/shim.rs has them.
enum { COLOUR_RGB = 0, COLOUR_GREY = 1 };
enum { NEEDED_NOTHING = 0, NEEDED_DC = 1, NEEDED_ALL = 2 };
enum { DONE = 0, FAILED = 1, UNSOUND = 2 };

// Upsampling looks at neighbours: with this many columns more on each side, a region has the pixels of
// the whole image. One is enough for the filter, but it is replaced by another for narrow images, and
// the library takes a narrow region for one.
enum { MARGIN_COLUMNS = 8, MARGIN_ROWS = 1 };

struct request {
  uint32_t left, top, width, height;  // In pixels of the scaled image.
  uint32_t eighths;                   // The scale, 8 for the image as it is.
  uint32_t colour;
  uint32_t has_fast_dct;
  uint32_t scans_max;
  uint32_t has_library_entropy;
};

struct rows {
  uint32_t left;   // Column of the first pixel that is wanted, in each row that is written.
  uint32_t width;  // Pixels in each row that is written.
};

// A scan as scan.rs decodes it.
struct component {
  const uint8_t *dc_counts, *dc_symbols;  // Its Huffman table for DC coefficients.
  const uint8_t *ac_counts, *ac_symbols;  // Its Huffman table for AC coefficients.
  uint32_t dc_table, ac_table;            // The numbers of these tables.
  uint32_t blocks;
  uint32_t needed;
};

struct plan {
  struct component components[MAX_COMPS_IN_SCAN];
  uint32_t components_count;
  uint32_t columns;
  uint32_t needed_begin, needed_end;
  uint32_t restart_interval;
};

struct scan;
int tierfeed_jpeg_scan_begin(struct scan *scan, const struct plan *plan);
int tierfeed_jpeg_scan_decode(struct scan *scan, const uint8_t *bytes, size_t length,
                              int16_t *const *blocks);
size_t tierfeed_jpeg_scan_read(const struct scan *scan);

struct decompressor {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf on_error;
  char message[JMSG_LENGTH_MAX];
  struct request request;
  struct scan *scan;
  int has_scan;     // Whether scan.rs decodes the image.
  int is_lossless;  // Of such an image (SOF3) the library decodes no parts.
};

static struct decompressor *of(j_common_ptr jpeg) { return jpeg->client_data; }

static _Noreturn void fail(struct decompressor *this, const char *message) {
  snprintf(this->message, sizeof this->message, "%s", message);
  longjmp(this->on_error, FAILED);
}

static void on_error(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, of(jpeg)->message);
  longjmp(of(jpeg)->on_error, FAILED);
}

// Warnings are of damaged data that is decoded nevertheless, as torchvision does.
static void on_message(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }

static void on_progress(j_common_ptr jpeg) {
  struct decompressor *this = of(jpeg);
  if ((uint32_t)this->jpeg.input_scan_number > this->request.scans_max)
    fail(this, "more scans than any encoder makes");
}

static void source_nothing(j_decompress_ptr jpeg) { (void)jpeg; }

static boolean source_is_empty(j_decompress_ptr jpeg) {
  fail(of((j_common_ptr)jpeg), "the file is truncated");
}

static void source_skip(j_decompress_ptr jpeg, long bytes) {
  if (bytes <= 0) return;
  if ((size_t)bytes > jpeg->src->bytes_in_buffer) source_is_empty(jpeg);
  jpeg->src->next_input_byte += bytes;
  jpeg->src->bytes_in_buffer -= (size_t)bytes;
}

// Returns NULL if there is no memory.
struct decompressor *tierfeed_jpeg_create(void) { return calloc(1, sizeof(struct decompressor)); }

// Drops the image, if there is one.
static void drop(struct decompressor *this) { jpeg_destroy_decompress(&this->jpeg); }

void tierfeed_jpeg_destroy(struct decompressor *this) {
  drop(this);
  free(this);
}

const char *tierfeed_jpeg_message(const struct decompressor *this) { return this->message; }

static void read_header(struct decompressor *this, const uint8_t *bytes, size_t length) {
  struct jpeg_decompress_struct *jpeg = &this->jpeg;
  drop(this);
  jpeg->err = jpeg_std_error(&this->errors);
  this->errors.error_exit = on_error;
  this->errors.emit_message = on_message;
  jpeg->client_data = this;
  jpeg_create_decompress(jpeg);
  // Not what JPEGMEM says: the caller limits the pixels.
  jpeg->mem->max_memory_to_use = 0;
  this->source = (struct jpeg_source_mgr){
      .next_input_byte = bytes,
      .bytes_in_buffer = length,
      .init_source = source_nothing,
      .fill_input_buffer = source_is_empty,
      .skip_input_data = source_skip,
      .resync_to_restart = jpeg_resync_to_restart,
      .term_source = source_nothing,
  };
  jpeg->src = &this->source;
  this->progress.progress_monitor = on_progress;
  jpeg->progress = &this->progress;
  jpeg_read_header(jpeg, TRUE);
}

// Tells the size of an image.
int tierfeed_jpeg_measure(struct decompressor *this, const uint8_t *bytes, size_t length,
                          uint32_t *width, uint32_t *height) {
  if (setjmp(this->on_error)) {
    drop(this);
    return FAILED;
  }
  read_header(this, bytes, length);
  *width = this->jpeg.image_width;
  *height = this->jpeg.image_height;
  drop(this);
  return DONE;
}

static int is_cmyk(const struct decompressor *this) {
  return this->jpeg.jpeg_color_space == JCS_CMYK || this->jpeg.jpeg_color_space == JCS_YCCK;
}

// Returns the first column that is written.
static JDIMENSION choose_columns(struct decompressor *this, struct rows *rows) {
  const struct request *request = &this->request;
  JDIMENSION right = request->left + request->width + MARGIN_COLUMNS;
  if (right > this->jpeg.output_width) right = this->jpeg.output_width;
  JDIMENSION left = request->left < MARGIN_COLUMNS ? 0 : request->left - MARGIN_COLUMNS;
  JDIMENSION width = right - left;
  // It moves the left end to where a block begins.
  jpeg_crop_scanline(&this->jpeg, &left, &width);
  rows->left = request->left - left;
  rows->width = width;
  return left;
}

static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
  struct decompressor *this = of((j_common_ptr)jpeg);
  int16_t *coefficients[D_MAX_BLOCKS_IN_MCU];
  for (int block = 0; blocks != NULL && block < jpeg->blocks_in_MCU; block++)
    coefficients[block] = blocks[block][0];
  // The bytes are those from the beginning of the scan on: nothing else reads of them during the scan.
  if (!tierfeed_jpeg_scan_decode(this->scan, this->source.next_input_byte,
                                 this->source.bytes_in_buffer, blocks ? coefficients : NULL))
    longjmp(this->on_error, UNSOUND);
  return TRUE;
}

static uint32_t needed(const jpeg_component_info *component) {
  if (!component->component_needed) return NEEDED_NOTHING;
  return component->DCT_scaled_size > 1 ? NEEDED_ALL : NEEDED_DC;
}

// Lets scan.rs decode the Huffman codes of a baseline image that has one scan.
static void replace_entropy_decoder(struct decompressor *this, const struct rows *rows,
                                    uint32_t left) {
  struct jpeg_decompress_struct *jpeg = &this->jpeg;
  int is_baseline = !jpeg->arith_code && !jpeg->progressive_mode && jpeg->data_precision == 8;
  if (!is_baseline || jpeg->comps_in_scan != jpeg->num_components || jpeg->unread_marker != 0) return;
  JDIMENSION width = jpeg->min_DCT_scaled_size;
  if (jpeg->num_components > 1) width *= jpeg->max_h_samp_factor;
  struct plan plan = {
      .components_count = jpeg->comps_in_scan,
      .columns = jpeg->MCUs_per_row,
      .needed_begin = left / width,
      .needed_end = (left + rows->width + width - 1) / width,
      .restart_interval = jpeg->restart_interval,
  };
  for (int i = 0; i < jpeg->comps_in_scan; i++) {
    const jpeg_component_info *component = jpeg->cur_comp_info[i];
    const JHUFF_TBL *dc = jpeg->dc_huff_tbl_ptrs[component->dc_tbl_no];
    const JHUFF_TBL *ac = jpeg->ac_huff_tbl_ptrs[component->ac_tbl_no];
    plan.components[i] = (struct component){
        .dc_counts = dc->bits,
        .dc_symbols = dc->huffval,
        .ac_counts = ac->bits,
        .ac_symbols = ac->huffval,
        .dc_table = component->dc_tbl_no,
        .ac_table = component->ac_tbl_no,
        .blocks = component->MCU_blocks,
        .needed = needed(component),
    };
  }
  if (!tierfeed_jpeg_scan_begin(this->scan, &plan)) return;
  jpeg->entropy->decode_mcu = decode_mcu;
  this->has_scan = 1;
}

// Starts to decode. `bytes` must stay where they are until the rows are read.
int tierfeed_jpeg_begin(struct decompressor *this, const uint8_t *bytes, size_t length,
                        const struct request *request, struct scan *scan, struct rows *rows) {
  struct jpeg_decompress_struct *jpeg = &this->jpeg;
  if (setjmp(this->on_error)) {
    drop(this);
    return FAILED;
  }
  this->request = *request;
  this->scan = scan;
  this->has_scan = 0;
  read_header(this, bytes, length);
  // Others have blocks of 8 by 8 samples, which are not scaled yet.
  this->is_lossless = jpeg->min_DCT_scaled_size == 1;
  if (this->is_lossless && request->eighths != 8)
    fail(this, "a lossless image is not decoded at a smaller scale");
  if (is_cmyk(this))
    jpeg->out_color_space = JCS_CMYK;
  else
    jpeg->out_color_space = request->colour == COLOUR_GREY ? JCS_GRAYSCALE : JCS_RGB;
  jpeg->dct_method = request->has_fast_dct ? JDCT_IFAST : JDCT_ISLOW;
  jpeg->do_fancy_upsampling = !request->has_fast_dct;
  jpeg->scale_num = request->eighths;
  jpeg->scale_denom = 8;
  jpeg_start_decompress(jpeg);
  if (request->width == 0 || request->height == 0 ||
      (uint64_t)request->left + request->width > jpeg->output_width ||
      (uint64_t)request->top + request->height > jpeg->output_height)
    fail(this, "the region is not within the image");
  *rows = (struct rows){.left = request->left, .width = jpeg->output_width};
  if (this->is_lossless) return DONE;
  JDIMENSION left = choose_columns(this, rows);
  if (!request->has_library_entropy) replace_entropy_decoder(this, rows, left);
  return DONE;
}

// As Pillow and torchvision convert: the samples are inverted, and black multiplies.
static uint8_t of_ink(int black, int ink) {
  int product = black * (255 - ink) + 128;
  int value = black - (((product >> 8) + product) >> 8);
  return value < 0 ? 0 : (uint8_t)value;
}

static void convert_cmyk(const uint8_t *cmyk, uint8_t *pixels, uint32_t width, uint32_t colour) {
  for (uint32_t column = 0; column < width; column++, cmyk += 4) {
    uint8_t red = of_ink(cmyk[3], cmyk[0]), green = of_ink(cmyk[3], cmyk[1]);
    uint8_t blue = of_ink(cmyk[3], cmyk[2]);
    if (colour == COLOUR_GREY) {
      *pixels++ = (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
    } else {
      *pixels++ = red;
      *pixels++ = green;
      *pixels++ = blue;
    }
  }
}

static void read_row(struct decompressor *this, uint8_t *row) {
  JSAMPROW rows[1] = {row};
  if (jpeg_read_scanlines(&this->jpeg, rows, 1) != 1) fail(this, "a row is missing");
}

// Reads on to the end of the image: what is wrong behind the region is found wherever the region lies, and
// an image is refused that the library refuses as a whole.
static void read_end(struct decompressor *this) {
  struct jpeg_decompress_struct *jpeg = &this->jpeg;
  if (this->has_scan) {
    // The library refuses nothing in the rest of a scan but a marker that begins no interval.
    size_t read = tierfeed_jpeg_scan_read(this->scan), rest = this->source.bytes_in_buffer - read;
    const uint8_t *at = this->source.next_input_byte + read, *end = at + rest;
    while ((at = memchr(at, 0xFF, (size_t)(end - at))) != NULL && end - at > 1) {
      uint8_t code = *++at;
      if (code == JPEG_EOI) return;
      int is_in_scan = code == 0 || code == 0xFF || (code >= JPEG_RST0 && code <= JPEG_RST0 + 7);
      if (!is_in_scan) longjmp(this->on_error, UNSOUND);
    }
    source_is_empty(jpeg);
  }
  // Images of several scans have been read to their end before the first row.
  if (jpeg_input_complete(jpeg)) return;
  size_t length = (size_t)jpeg->output_width * jpeg->output_components;
  uint8_t *row = jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE, length);
  while (jpeg->output_scanline < jpeg->output_height) read_row(this, row);
  jpeg_finish_decompress(jpeg);
}

static void read_rows(struct decompressor *this, uint8_t *pixels, size_t length) {
  struct jpeg_decompress_struct *jpeg = &this->jpeg;
  const struct request *request = &this->request;
  size_t stride = (size_t)jpeg->output_width * (request->colour == COLOUR_GREY ? 1 : 3);
  if (length / stride < request->height) fail(this, "the buffer is too small");
  uint8_t *inks = NULL;
  if (is_cmyk(this))
    inks = jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE, (size_t)jpeg->output_width * 4);
  JDIMENSION above = request->top < MARGIN_ROWS ? 0 : request->top - MARGIN_ROWS;
  if (this->is_lossless) above = 0;
  if (above > 0 && jpeg_skip_scanlines(jpeg, above) != above) fail(this, "a row is missing");
  // What is read above the region is overwritten.
  for (; above < request->top; above++) read_row(this, inks ? inks : pixels);
  for (uint32_t row = 0; row < request->height; row++, pixels += stride) {
    read_row(this, inks ? inks : pixels);
    if (inks) convert_cmyk(inks, pixels, jpeg->output_width, request->colour);
  }
  read_end(this);
}

// Writes the rows of the region, one after another, each `width` pixels of what begin returned. If it
// returns UNSOUND, the image must be begun again with the entropy decoder of the library.
int tierfeed_jpeg_rows(struct decompressor *this, uint8_t *pixels, size_t length) {
  switch (setjmp(this->on_error)) {
    case 0:
      break;
    case UNSOUND:
      drop(this);
      return UNSOUND;
    default:
      drop(this);
      return FAILED;
  }
  read_rows(this, pixels, length);
  drop(this);
  return DONE;
}
