#include "loam/train/trainer.h"

namespace loam {

int64_t Trainer::activation_bytes(const TrainConfig&) { return 0; }

}  // namespace loam
