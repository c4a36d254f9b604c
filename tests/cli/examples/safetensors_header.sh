# The length, the beginning of the header, and the first tensor: one float32.
calibrate llama fp8_kv_tensor
file=out/model.safetensors
length=$(header $file | wc -c)
{
  od -An -tx1 -N8 $file
  header $file | sed -E 's/("model\.layers\.0\.self_attn\.k_scale":\{[^}]*\},).*/\1…\n/'
  od -An -tx1 -j$((8 + length)) -N4 $file | sed 's/$/ …/'
} | sed 's/^ //'
