/* What a status means, for people. */
#include "pmeta.h"

const char *pmeta_message(pmeta_status status)
{
    switch (status) {
    case PMETA_OK: return "no error";
    case PMETA_NOT_A_MODEL: return "the file is not a pmeta model: write one with `pmeta export`";
    case PMETA_FOREIGN_ENDIAN: return "the file is little-endian and this machine is not";
    case PMETA_OTHER_VERSION:
        return "the file has another format version than this engine: write it again with the "
               "same release";
    case PMETA_TRUNCATED: return "the file ends before the length in its header: copy it again";
    case PMETA_CHECKSUM:
        return "the checksum does not fit: the file was changed or damaged, copy it again";
    case PMETA_CORRUPT:
        return "the file holds an offset, a size or an instruction that does not fit: write it "
               "again";
    case PMETA_ALIGNMENT:
        return "file, arena and float32 samples must start at addresses that 4 divides";
    case PMETA_ARENA_TOO_SMALL:
        return "the arena is smaller than the model needs: give it arena_bytes (infer_bytes to "
               "infer only)";
    case PMETA_ORDER:
        return "call out of order: open, start, begin, then in each step feed every support sample "
               "and step";
    case PMETA_LABEL:
        return "labels are 0 to classes - 1, and classes at most as many as outputs; a head from "
               "prototypes needs a sample of each; a model with many rows takes pmeta_forward and "
               "pmeta_backward";
    case PMETA_ARGUMENT: return "an argument is null, or a size is not the one that the model has";
    case PMETA_NOT_FINITE:
        return "samples, gradients, outputs and weights must be finite, one is not: mend the "
               "sample, or, where the steps diverged, take other samples";
    case PMETA_STOPPED: return "stopped by the function that pmeta_on_yield was given";
    case PMETA_NO_STATE:
        return "neither slot holds a whole state of this model: adapt it and save its state first";
    case PMETA_TOO_MUCH_WORK:
        return "the file asks for more work than the engine's limit for one sample: do not trust "
               "it, or raise PMETA_MOST_WORK";
    case PMETA_STORAGE:
        return "a slot could not be erased, written or read back: the state that was saved before "
               "is still there";
    }
    return "unknown status";
}
