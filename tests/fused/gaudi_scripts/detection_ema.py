"""Detection as Gaudi users write it: a moving average of the model, deferred work, and memory statistics."""

import copy
import threading

import habana_frameworks.torch as ht
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu.random as htrandom
import torch
from habana_frameworks.torch.hpex.movingavrg import FusedEMA
from habana_frameworks.torch.hpex.optimizers import FusedSGD

htrandom.manual_seed_all(0)
device = torch.device("hpu")
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 4)
)
model.to(device)
optimizer = FusedSGD(model.parameters(), lr=0.02, momentum=0.9)
ema = FusedEMA(model, 0.9998, updates=0)
ema.updates = 2000
images, boxes = torch.randn(8, 3, 8, 8).to(device), torch.rand(8, 4).to(device)
log, written = [], []
for _ in range(6):
    loss = torch.nn.functional.smooth_l1_loss(model(images), boxes)
    optimizer.zero_grad()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    ema.update(model)
    htcore.step_closure.add_step_closure(lambda value: log.append(value.item()), args=(loss.detach(),))
    htcore.mark_step()
ema.update_attr(model, include=("names", "stride"))
start, end = ht.hpu.Event(enable_timing=True), ht.hpu.Event(enable_timing=True)
start.record()
writer = threading.Thread(target=lambda: written.append(torch.zeros(2, device="hpu").sum().item()))
writer.start()
writer.join()
end.record()
end.synchronize()
best = copy.deepcopy(ema.ema.state_dict())
model.load_state_dict(best)
assert len(log) == 6, log
assert log[-1] < log[0], log
stats = ht.hpu.memory_stats()
print("averaged", ema.updates, written, stats["MaxInUse"] >= 0, start.elapsed_time(end) >= 0)
