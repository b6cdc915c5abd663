# One H200 in memory-bound decode, then idle for 5 s, then compute-bound prefill under a power cap; beside it an A100,
# which has no GPM.
driver 580.82
device 0 name="NVIDIA H200" arch=9 cc=9.0 bus_width=6144 mem_clk_max=3201 sm_max=1980 mem_total=150754820096 power_limit_w=700
device 1 name="NVIDIA A100-SXM4-80GB" arch=7 cc=8.0 bus_width=5120 mem_clk_max=1593 sm_max=1410 mem_total=85899345920 power_limit_w=400 gpm=0 power_field=0
at 0  * gr=100 sm=92 occ=31 tensor=9 hmma=9 dram=71 fp32=4 fp16=2 pcie_tx=120 pcie_rx=60 nvl_tx=30 nvl_rx=40 gpu_util=100 mem_util=68 sm_clk=1980 mem_clk=3201 power_w=430 temp=51 mem_used=130000000000
at 0  1 sm_clk=1410 mem_clk=1593 mem_used=60000000000
at 10 * gr=3 sm=1 occ=0 tensor=0 hmma=0 dram=0.5 gpu_util=2 mem_util=0 power_w=120 throttle=1
at 15 * gr=100 sm=99 occ=24 tensor=62 hmma=62 dram=22 gpu_util=100 mem_util=15 sm_clk=1500 power_w=699 throttle=4
at 15 1 sm_clk=1200
