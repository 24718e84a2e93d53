; conv|8,1,1,8,8,0,1,1,1,0,False,False,True,True,False,0,False,0,False|f32:unit|[0]|const:f32()0.0;acc:f32()None;maxr:f32(0,1)None->2
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load ptr, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load i64, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %p26 = getelementptr i64, ptr %args, i64 13
  %a27 = load i64, ptr %p26, align 8
  %p28 = getelementptr i64, ptr %args, i64 14
  %a29 = load i64, ptr %p28, align 8
  %p30 = getelementptr i64, ptr %args, i64 15
  %a31 = load i64, ptr %p30, align 8
  %p32 = getelementptr i64, ptr %args, i64 16
  %a33 = load i64, ptr %p32, align 8
  %p34 = getelementptr i64, ptr %args, i64 17
  %a35 = load i64, ptr %p34, align 8
  %p36 = getelementptr i64, ptr %args, i64 18
  %a37 = load i64, ptr %p36, align 8
  %p38 = getelementptr i64, ptr %args, i64 19
  %a39 = load i64, ptr %p38, align 8
  %p40 = getelementptr i64, ptr %args, i64 20
  %a41 = load i64, ptr %p40, align 8
  %p42 = getelementptr i64, ptr %args, i64 21
  %a43 = load i64, ptr %p42, align 8
  %p44 = getelementptr i64, ptr %args, i64 22
  %a45 = load i64, ptr %p44, align 8
  %p46 = getelementptr i64, ptr %args, i64 23
  %a47 = load i64, ptr %p46, align 8
  %p48 = getelementptr i64, ptr %args, i64 24
  %a49 = load i64, ptr %p48, align 8
  %p50 = getelementptr i64, ptr %args, i64 25
  %a51 = load i64, ptr %p50, align 8
  %p52 = getelementptr i64, ptr %args, i64 26
  %a53 = load i64, ptr %p52, align 8
  %p54 = getelementptr i64, ptr %args, i64 27
  %a55 = load i64, ptr %p54, align 8
  %p56 = getelementptr i64, ptr %args, i64 28
  %a57 = load i64, ptr %p56, align 8
  %p58 = getelementptr i64, ptr %args, i64 29
  %a59 = load i64, ptr %p58, align 8
  %p60 = getelementptr i64, ptr %args, i64 30
  %a61 = load i64, ptr %p60, align 8
  %p62 = getelementptr i64, ptr %args, i64 31
  %a63 = load i64, ptr %p62, align 8
  %p64 = getelementptr i64, ptr %args, i64 32
  %a65 = load i64, ptr %p64, align 8
  %p66 = getelementptr i64, ptr %args, i64 33
  %a67 = load i64, ptr %p66, align 8
  %p68 = getelementptr i64, ptr %args, i64 34
  %a69 = load ptr, ptr %p68, align 8
  %p70 = getelementptr i64, ptr %args, i64 35
  %a71 = load i64, ptr %p70, align 8
  %p72 = getelementptr i64, ptr %args, i64 36
  %a73 = load i64, ptr %p72, align 8
  %p74 = getelementptr i64, ptr %args, i64 37
  %a75 = load i64, ptr %p74, align 8
  %p76 = getelementptr i64, ptr %args, i64 38
  %a77 = load i64, ptr %p76, align 8
  %p78 = getelementptr i64, ptr %args, i64 39
  %a79 = load i64, ptr %p78, align 8
  %i80 = urem i64 %begin, %a23
  %i81 = udiv i64 %begin, %a23
  %i82 = urem i64 %i81, %a17
  %i83 = udiv i64 %i81, %a17
  %i84 = urem i64 %i83, %a15
  %i85 = udiv i64 %i83, %a15
  %i86 = urem i64 %i85, %a9
  %i87 = udiv i64 %i85, %a9
  %i88 = urem i64 %i87, %a11
  %i89 = udiv i64 %i87, %a11
  %c92 = icmp slt i64 %begin, %end
  br i1 %c92, label %loop90, label %done91
loop90:
  %i93 = phi i64 [ %begin, %entry ], [ %i365, %done147 ]
  %r94 = phi i64 [ %i80, %entry ], [ %i346, %done147 ]
  %r95 = phi i64 [ %i82, %entry ], [ %i350, %done147 ]
  %r96 = phi i64 [ %i84, %entry ], [ %i354, %done147 ]
  %r97 = phi i64 [ %i86, %entry ], [ %i358, %done147 ]
  %r98 = phi i64 [ %i88, %entry ], [ %i362, %done147 ]
  %r99 = phi i64 [ %i89, %entry ], [ %i364, %done147 ]
  %i100 = mul i64 %r99, %a11
  %i101 = add i64 %i100, %r98
  %i102 = mul i64 %r96, %a39
  %i103 = sub i64 %i102, %a33
  %i104 = mul i64 %r95, %a41
  %i105 = sub i64 %i104, %a35
  %i106 = mul i64 %r94, %a21
  %i107 = mul i64 %r99, %a13
  %i108 = add i64 %i107, %r98
  %i109 = sub i64 %a43, 1
  %i110 = sub i64 %i109, %i103
  %i111 = sdiv i64 %i110, %a43
  %c112 = icmp sgt i64 %i111, 0
  %i113 = select i1 %c112, i64 %i111, i64 0
  %i114 = sub i64 %a27, %i103
  %i115 = add i64 %i114, %i109
  %i116 = sdiv i64 %i115, %a43
  %c117 = icmp slt i64 %i116, %a49
  %i118 = select i1 %c117, i64 %i116, i64 %a49
  %c119 = icmp sgt i64 %i118, %i113
  %i120 = select i1 %c119, i64 %i118, i64 %i113
  %i121 = sub i64 %a45, 1
  %i122 = sub i64 %i121, %i105
  %i123 = sdiv i64 %i122, %a45
  %c124 = icmp sgt i64 %i123, 0
  %i125 = select i1 %c124, i64 %i123, i64 0
  %i126 = sub i64 %a29, %i105
  %i127 = add i64 %i126, %i121
  %i128 = sdiv i64 %i127, %a45
  %c129 = icmp slt i64 %i128, %a51
  %i130 = select i1 %c129, i64 %i128, i64 %a51
  %c131 = icmp sgt i64 %i130, %i125
  %i132 = select i1 %c131, i64 %i130, i64 %i125
  %i133 = mul i64 %r97, %a57
  %i134 = mul i64 %r99, %a59
  %i135 = add i64 %i133, %i134
  %p136 = getelementptr float, ptr %a1, i64 %i135
  %i137 = mul i64 %i101, %a67
  %p138 = getelementptr float, ptr %a3, i64 %i137
  %i139 = add i64 %i106, %a21
  %c140 = icmp slt i64 %i139, %a19
  %i141 = select i1 %c140, i64 %i139, i64 %a19
  %i142 = sub i64 %i141, %i106
  %i143 = sdiv i64 %i142, 8
  %i144 = mul i64 %i143, 8
  %i145 = add i64 %i106, %i144
  %c148 = icmp slt i64 %i106, %i145
  br i1 %c148, label %loop146, label %done147
loop146:
  %i149 = phi i64 [ %i106, %loop90 ], [ %i341, %done160 ]
  %i150 = mul i64 %i108, 8
  %p151 = getelementptr float, ptr %a5, i64 %i150
  %w152 = load <8 x float>, ptr %p151, align 4
  %i153 = sub i64 %i149, %a37
  %i154 = mul i64 %a51, %a53
  %i155 = mul i64 %a49, %i154
  %i156 = mul i64 %i155, 8
  %i157 = mul i64 %a53, 8
  %i158 = mul i64 %a51, %i157
  %c161 = icmp slt i64 0, %a55
  br i1 %c161, label %loop159, label %done160
loop159:
  %i162 = phi i64 [ 0, %loop146 ], [ %i298, %done176 ]
  %r163 = phi <8 x float> [ %w152, %loop146 ], [ %r290, %done176 ]
  %r164 = phi <8 x float> [ %w152, %loop146 ], [ %r291, %done176 ]
  %r165 = phi <8 x float> [ %w152, %loop146 ], [ %r292, %done176 ]
  %r166 = phi <8 x float> [ %w152, %loop146 ], [ %r293, %done176 ]
  %r167 = phi <8 x float> [ %w152, %loop146 ], [ %r294, %done176 ]
  %r168 = phi <8 x float> [ %w152, %loop146 ], [ %r295, %done176 ]
  %r169 = phi <8 x float> [ %w152, %loop146 ], [ %r296, %done176 ]
  %r170 = phi <8 x float> [ %w152, %loop146 ], [ %r297, %done176 ]
  %i171 = mul i64 %i162, %a61
  %p172 = getelementptr float, ptr %p136, i64 %i171
  %i173 = mul i64 %i162, %i156
  %p174 = getelementptr float, ptr %p138, i64 %i173
  %c177 = icmp slt i64 %i113, %i120
  br i1 %c177, label %loop175, label %done176
loop175:
  %i178 = phi i64 [ %i113, %loop159 ], [ %i288, %done194 ]
  %r179 = phi <8 x float> [ %r163, %loop159 ], [ %r280, %done194 ]
  %r180 = phi <8 x float> [ %r164, %loop159 ], [ %r281, %done194 ]
  %r181 = phi <8 x float> [ %r165, %loop159 ], [ %r282, %done194 ]
  %r182 = phi <8 x float> [ %r166, %loop159 ], [ %r283, %done194 ]
  %r183 = phi <8 x float> [ %r167, %loop159 ], [ %r284, %done194 ]
  %r184 = phi <8 x float> [ %r168, %loop159 ], [ %r285, %done194 ]
  %r185 = phi <8 x float> [ %r169, %loop159 ], [ %r286, %done194 ]
  %r186 = phi <8 x float> [ %r170, %loop159 ], [ %r287, %done194 ]
  %i187 = mul i64 %i178, %a43
  %i188 = add i64 %i103, %i187
  %i189 = mul i64 %i188, %a63
  %p190 = getelementptr float, ptr %p172, i64 %i189
  %i191 = mul i64 %i178, %i158
  %p192 = getelementptr float, ptr %p174, i64 %i191
  %c195 = icmp slt i64 %i125, %i132
  br i1 %c195, label %loop193, label %done194
loop193:
  %i196 = phi i64 [ %i125, %loop175 ], [ %i278, %done212 ]
  %r197 = phi <8 x float> [ %r179, %loop175 ], [ %r270, %done212 ]
  %r198 = phi <8 x float> [ %r180, %loop175 ], [ %r271, %done212 ]
  %r199 = phi <8 x float> [ %r181, %loop175 ], [ %r272, %done212 ]
  %r200 = phi <8 x float> [ %r182, %loop175 ], [ %r273, %done212 ]
  %r201 = phi <8 x float> [ %r183, %loop175 ], [ %r274, %done212 ]
  %r202 = phi <8 x float> [ %r184, %loop175 ], [ %r275, %done212 ]
  %r203 = phi <8 x float> [ %r185, %loop175 ], [ %r276, %done212 ]
  %r204 = phi <8 x float> [ %r186, %loop175 ], [ %r277, %done212 ]
  %i205 = mul i64 %i196, %a45
  %i206 = add i64 %i105, %i205
  %i207 = mul i64 %i206, %a65
  %p208 = getelementptr float, ptr %p190, i64 %i207
  %i209 = mul i64 %i196, %i157
  %p210 = getelementptr float, ptr %p192, i64 %i209
  %c213 = icmp slt i64 0, %a53
  br i1 %c213, label %loop211, label %done212
loop211:
  %i214 = phi i64 [ 0, %loop193 ], [ %i268, %loop211 ]
  %r215 = phi <8 x float> [ %r197, %loop193 ], [ %v232, %loop211 ]
  %r216 = phi <8 x float> [ %r198, %loop193 ], [ %v237, %loop211 ]
  %r217 = phi <8 x float> [ %r199, %loop193 ], [ %v242, %loop211 ]
  %r218 = phi <8 x float> [ %r200, %loop193 ], [ %v247, %loop211 ]
  %r219 = phi <8 x float> [ %r201, %loop193 ], [ %v252, %loop211 ]
  %r220 = phi <8 x float> [ %r202, %loop193 ], [ %v257, %loop211 ]
  %r221 = phi <8 x float> [ %r203, %loop193 ], [ %v262, %loop211 ]
  %r222 = phi <8 x float> [ %r204, %loop193 ], [ %v267, %loop211 ]
  %i223 = mul i64 %i214, 8
  %p224 = getelementptr float, ptr %p210, i64 %i223
  %i225 = mul i64 %i214, %a47
  %i226 = add i64 %i153, %i225
  %p227 = getelementptr float, ptr %p208, i64 %i226
  %w228 = load <8 x float>, ptr %p224, align 4
  %x229 = load float, ptr %p227, align 4
  %v230 = insertelement <8 x float> poison, float %x229, i32 0
  %v231 = shufflevector <8 x float> %v230, <8 x float> poison, <8 x i32> zeroinitializer
  %v232 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v231, <8 x float> %w228, <8 x float> %r215)
  %p233 = getelementptr float, ptr %p227, i64 1
  %x234 = load float, ptr %p233, align 4
  %v235 = insertelement <8 x float> poison, float %x234, i32 0
  %v236 = shufflevector <8 x float> %v235, <8 x float> poison, <8 x i32> zeroinitializer
  %v237 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v236, <8 x float> %w228, <8 x float> %r216)
  %p238 = getelementptr float, ptr %p227, i64 2
  %x239 = load float, ptr %p238, align 4
  %v240 = insertelement <8 x float> poison, float %x239, i32 0
  %v241 = shufflevector <8 x float> %v240, <8 x float> poison, <8 x i32> zeroinitializer
  %v242 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v241, <8 x float> %w228, <8 x float> %r217)
  %p243 = getelementptr float, ptr %p227, i64 3
  %x244 = load float, ptr %p243, align 4
  %v245 = insertelement <8 x float> poison, float %x244, i32 0
  %v246 = shufflevector <8 x float> %v245, <8 x float> poison, <8 x i32> zeroinitializer
  %v247 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v246, <8 x float> %w228, <8 x float> %r218)
  %p248 = getelementptr float, ptr %p227, i64 4
  %x249 = load float, ptr %p248, align 4
  %v250 = insertelement <8 x float> poison, float %x249, i32 0
  %v251 = shufflevector <8 x float> %v250, <8 x float> poison, <8 x i32> zeroinitializer
  %v252 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v251, <8 x float> %w228, <8 x float> %r219)
  %p253 = getelementptr float, ptr %p227, i64 5
  %x254 = load float, ptr %p253, align 4
  %v255 = insertelement <8 x float> poison, float %x254, i32 0
  %v256 = shufflevector <8 x float> %v255, <8 x float> poison, <8 x i32> zeroinitializer
  %v257 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v256, <8 x float> %w228, <8 x float> %r220)
  %p258 = getelementptr float, ptr %p227, i64 6
  %x259 = load float, ptr %p258, align 4
  %v260 = insertelement <8 x float> poison, float %x259, i32 0
  %v261 = shufflevector <8 x float> %v260, <8 x float> poison, <8 x i32> zeroinitializer
  %v262 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v261, <8 x float> %w228, <8 x float> %r221)
  %p263 = getelementptr float, ptr %p227, i64 7
  %x264 = load float, ptr %p263, align 4
  %v265 = insertelement <8 x float> poison, float %x264, i32 0
  %v266 = shufflevector <8 x float> %v265, <8 x float> poison, <8 x i32> zeroinitializer
  %v267 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v266, <8 x float> %w228, <8 x float> %r222)
  %i268 = add nsw i64 %i214, 1
  %c269 = icmp slt i64 %i268, %a53
  br i1 %c269, label %loop211, label %done212
done212:
  %r270 = phi <8 x float> [ %r197, %loop193 ], [ %v232, %loop211 ]
  %r271 = phi <8 x float> [ %r198, %loop193 ], [ %v237, %loop211 ]
  %r272 = phi <8 x float> [ %r199, %loop193 ], [ %v242, %loop211 ]
  %r273 = phi <8 x float> [ %r200, %loop193 ], [ %v247, %loop211 ]
  %r274 = phi <8 x float> [ %r201, %loop193 ], [ %v252, %loop211 ]
  %r275 = phi <8 x float> [ %r202, %loop193 ], [ %v257, %loop211 ]
  %r276 = phi <8 x float> [ %r203, %loop193 ], [ %v262, %loop211 ]
  %r277 = phi <8 x float> [ %r204, %loop193 ], [ %v267, %loop211 ]
  %i278 = add nsw i64 %i196, 1
  %c279 = icmp slt i64 %i278, %i132
  br i1 %c279, label %loop193, label %done194
done194:
  %r280 = phi <8 x float> [ %r179, %loop175 ], [ %r270, %done212 ]
  %r281 = phi <8 x float> [ %r180, %loop175 ], [ %r271, %done212 ]
  %r282 = phi <8 x float> [ %r181, %loop175 ], [ %r272, %done212 ]
  %r283 = phi <8 x float> [ %r182, %loop175 ], [ %r273, %done212 ]
  %r284 = phi <8 x float> [ %r183, %loop175 ], [ %r274, %done212 ]
  %r285 = phi <8 x float> [ %r184, %loop175 ], [ %r275, %done212 ]
  %r286 = phi <8 x float> [ %r185, %loop175 ], [ %r276, %done212 ]
  %r287 = phi <8 x float> [ %r186, %loop175 ], [ %r277, %done212 ]
  %i288 = add nsw i64 %i178, 1
  %c289 = icmp slt i64 %i288, %i120
  br i1 %c289, label %loop175, label %done176
done176:
  %r290 = phi <8 x float> [ %r163, %loop159 ], [ %r280, %done194 ]
  %r291 = phi <8 x float> [ %r164, %loop159 ], [ %r281, %done194 ]
  %r292 = phi <8 x float> [ %r165, %loop159 ], [ %r282, %done194 ]
  %r293 = phi <8 x float> [ %r166, %loop159 ], [ %r283, %done194 ]
  %r294 = phi <8 x float> [ %r167, %loop159 ], [ %r284, %done194 ]
  %r295 = phi <8 x float> [ %r168, %loop159 ], [ %r285, %done194 ]
  %r296 = phi <8 x float> [ %r169, %loop159 ], [ %r286, %done194 ]
  %r297 = phi <8 x float> [ %r170, %loop159 ], [ %r287, %done194 ]
  %i298 = add nsw i64 %i162, 1
  %c299 = icmp slt i64 %i298, %a55
  br i1 %c299, label %loop159, label %done160
done160:
  %r300 = phi <8 x float> [ %w152, %loop146 ], [ %r290, %done176 ]
  %r301 = phi <8 x float> [ %w152, %loop146 ], [ %r291, %done176 ]
  %r302 = phi <8 x float> [ %w152, %loop146 ], [ %r292, %done176 ]
  %r303 = phi <8 x float> [ %w152, %loop146 ], [ %r293, %done176 ]
  %r304 = phi <8 x float> [ %w152, %loop146 ], [ %r294, %done176 ]
  %r305 = phi <8 x float> [ %w152, %loop146 ], [ %r295, %done176 ]
  %r306 = phi <8 x float> [ %w152, %loop146 ], [ %r296, %done176 ]
  %r307 = phi <8 x float> [ %w152, %loop146 ], [ %r297, %done176 ]
  %i308 = mul i64 %r97, %a71
  %i309 = mul i64 %i108, %a73
  %i310 = add i64 %i308, %i309
  %i311 = mul i64 %r96, %a75
  %i312 = add i64 %i310, %i311
  %i313 = mul i64 %r95, %a77
  %i314 = add i64 %i312, %i313
  %i315 = mul i64 %i149, 8
  %i316 = add i64 %i314, %i315
  %p317 = getelementptr float, ptr %a69, i64 %i316
  %v318 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r300
  %v319 = select <8 x i1> %v318, <8 x float> splat (float 0x0000000000000000), <8 x float> %r300
  store <8 x float> %v319, ptr %p317, align 4
  %p320 = getelementptr float, ptr %p317, i64 8
  %v321 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r301
  %v322 = select <8 x i1> %v321, <8 x float> splat (float 0x0000000000000000), <8 x float> %r301
  store <8 x float> %v322, ptr %p320, align 4
  %p323 = getelementptr float, ptr %p317, i64 16
  %v324 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r302
  %v325 = select <8 x i1> %v324, <8 x float> splat (float 0x0000000000000000), <8 x float> %r302
  store <8 x float> %v325, ptr %p323, align 4
  %p326 = getelementptr float, ptr %p317, i64 24
  %v327 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r303
  %v328 = select <8 x i1> %v327, <8 x float> splat (float 0x0000000000000000), <8 x float> %r303
  store <8 x float> %v328, ptr %p326, align 4
  %p329 = getelementptr float, ptr %p317, i64 32
  %v330 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r304
  %v331 = select <8 x i1> %v330, <8 x float> splat (float 0x0000000000000000), <8 x float> %r304
  store <8 x float> %v331, ptr %p329, align 4
  %p332 = getelementptr float, ptr %p317, i64 40
  %v333 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r305
  %v334 = select <8 x i1> %v333, <8 x float> splat (float 0x0000000000000000), <8 x float> %r305
  store <8 x float> %v334, ptr %p332, align 4
  %p335 = getelementptr float, ptr %p317, i64 48
  %v336 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r306
  %v337 = select <8 x i1> %v336, <8 x float> splat (float 0x0000000000000000), <8 x float> %r306
  store <8 x float> %v337, ptr %p335, align 4
  %p338 = getelementptr float, ptr %p317, i64 56
  %v339 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r307
  %v340 = select <8 x i1> %v339, <8 x float> splat (float 0x0000000000000000), <8 x float> %r307
  store <8 x float> %v340, ptr %p338, align 4
  %i341 = add nsw i64 %i149, 8
  %c342 = icmp slt i64 %i341, %i145
  br i1 %c342, label %loop146, label %done147
done147:
  %i343 = zext i1 true to i64
  %i344 = add i64 %r94, %i343
  %c345 = icmp eq i64 %i344, %a23
  %i346 = select i1 %c345, i64 0, i64 %i344
  %i347 = zext i1 %c345 to i64
  %i348 = add i64 %r95, %i347
  %c349 = icmp eq i64 %i348, %a17
  %i350 = select i1 %c349, i64 0, i64 %i348
  %i351 = zext i1 %c349 to i64
  %i352 = add i64 %r96, %i351
  %c353 = icmp eq i64 %i352, %a15
  %i354 = select i1 %c353, i64 0, i64 %i352
  %i355 = zext i1 %c353 to i64
  %i356 = add i64 %r97, %i355
  %c357 = icmp eq i64 %i356, %a9
  %i358 = select i1 %c357, i64 0, i64 %i356
  %i359 = zext i1 %c357 to i64
  %i360 = add i64 %r98, %i359
  %c361 = icmp eq i64 %i360, %a11
  %i362 = select i1 %c361, i64 0, i64 %i360
  %i363 = zext i1 %c361 to i64
  %i364 = add i64 %r99, %i363
  %i365 = add nsw i64 %i93, 1
  %c366 = icmp slt i64 %i365, %end
  br i1 %c366, label %loop90, label %done91
done91:
  %r367 = phi i64 [ %i80, %entry ], [ %i346, %done147 ]
  %r368 = phi i64 [ %i82, %entry ], [ %i350, %done147 ]
  %r369 = phi i64 [ %i84, %entry ], [ %i354, %done147 ]
  %r370 = phi i64 [ %i86, %entry ], [ %i358, %done147 ]
  %r371 = phi i64 [ %i88, %entry ], [ %i362, %done147 ]
  %r372 = phi i64 [ %i89, %entry ], [ %i364, %done147 ]
  ret void
}

; window|max|8|1|4|2|2|1|1|False|8,4,0,8|False|True|f32:unit|[0]|acc:f32()None->0
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load ptr, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load i64, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %p26 = getelementptr i64, ptr %args, i64 13
  %a27 = load i64, ptr %p26, align 8
  %p28 = getelementptr i64, ptr %args, i64 14
  %a29 = load i64, ptr %p28, align 8
  %p30 = getelementptr i64, ptr %args, i64 15
  %a31 = load i64, ptr %p30, align 8
  %p32 = getelementptr i64, ptr %args, i64 16
  %a33 = load i64, ptr %p32, align 8
  %p34 = getelementptr i64, ptr %args, i64 17
  %a35 = load i64, ptr %p34, align 8
  %p36 = getelementptr i64, ptr %args, i64 18
  %a37 = load i64, ptr %p36, align 8
  %p38 = getelementptr i64, ptr %args, i64 19
  %a39 = load i64, ptr %p38, align 8
  %p40 = getelementptr i64, ptr %args, i64 20
  %a41 = load i64, ptr %p40, align 8
  %p42 = getelementptr i64, ptr %args, i64 21
  %a43 = load i64, ptr %p42, align 8
  %p44 = getelementptr i64, ptr %args, i64 22
  %a45 = load i64, ptr %p44, align 8
  %p46 = getelementptr i64, ptr %args, i64 23
  %a47 = load i64, ptr %p46, align 8
  %p48 = getelementptr i64, ptr %args, i64 24
  %a49 = load i64, ptr %p48, align 8
  %p50 = getelementptr i64, ptr %args, i64 25
  %a51 = load i64, ptr %p50, align 8
  %p52 = getelementptr i64, ptr %args, i64 26
  %a53 = load i64, ptr %p52, align 8
  %p54 = getelementptr i64, ptr %args, i64 27
  %a55 = load i64, ptr %p54, align 8
  %p56 = getelementptr i64, ptr %args, i64 28
  %a57 = load i64, ptr %p56, align 8
  %p58 = getelementptr i64, ptr %args, i64 29
  %a59 = load i64, ptr %p58, align 8
  %p60 = getelementptr i64, ptr %args, i64 30
  %a61 = load ptr, ptr %p60, align 8
  %p62 = getelementptr i64, ptr %args, i64 31
  %a63 = load i64, ptr %p62, align 8
  %p64 = getelementptr i64, ptr %args, i64 32
  %a65 = load i64, ptr %p64, align 8
  %p66 = getelementptr i64, ptr %args, i64 33
  %a67 = load i64, ptr %p66, align 8
  %p68 = getelementptr i64, ptr %args, i64 34
  %a69 = load i64, ptr %p68, align 8
  %p70 = getelementptr i64, ptr %args, i64 35
  %a71 = load i64, ptr %p70, align 8
  %i72 = urem i64 %begin, %a17
  %i73 = udiv i64 %begin, %a17
  %i74 = urem i64 %i73, %a13
  %i75 = udiv i64 %i73, %a13
  %i76 = urem i64 %i75, %a19
  %i77 = udiv i64 %i75, %a19
  %i78 = urem i64 %i77, %a15
  %i79 = udiv i64 %i77, %a15
  %c82 = icmp slt i64 %begin, %end
  br i1 %c82, label %loop80, label %done81
loop80:
  %i83 = phi i64 [ %begin, %entry ], [ %i209, %after92 ]
  %r84 = phi i64 [ %i72, %entry ], [ %i194, %after92 ]
  %r85 = phi i64 [ %i74, %entry ], [ %i198, %after92 ]
  %r86 = phi i64 [ %i76, %entry ], [ %i202, %after92 ]
  %r87 = phi i64 [ %i78, %entry ], [ %i206, %after92 ]
  %r88 = phi i64 [ %i79, %entry ], [ %i208, %after92 ]
  %i89 = mul i64 %r86, %a17
  %i90 = add i64 %i89, %r84
  %c93 = icmp slt i64 %i90, %a21
  br i1 %c93, label %exists91, label %after92
exists91:
  %i94 = mul i64 %i90, %a39
  %i95 = sub i64 %i94, %a33
  %i96 = sub i64 0, %i95
  %i97 = sdiv i64 %i96, 1
  %c98 = icmp sgt i64 %i97, 0
  %i99 = select i1 %c98, i64 %i97, i64 0
  %i100 = sub i64 %a27, %i95
  %i101 = sdiv i64 %i100, 1
  %c102 = icmp slt i64 %i101, %a45
  %i103 = select i1 %c102, i64 %i101, i64 %a45
  %c104 = icmp sgt i64 %i103, %i99
  %i105 = select i1 %c104, i64 %i103, i64 %i99
  %i106 = mul i64 %r88, %a53
  %i107 = mul i64 %r85, %a55
  %i108 = add i64 %i106, %i107
  %p109 = getelementptr float, ptr %a1, i64 %i108
  %i110 = sub i64 0, %a35
  %i111 = add i64 %i95, %i99
  %i112 = mul i64 %i111, %a59
  %p113 = getelementptr float, ptr %p109, i64 %i112
  %c116 = icmp slt i64 %i99, %i105
  br i1 %c116, label %loop114, label %done115
loop114:
  %i117 = phi i64 [ %i99, %exists91 ], [ %i173, %loop114 ]
  %r118 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v136, %loop114 ]
  %r119 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v148, %loop114 ]
  %r120 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v160, %loop114 ]
  %r121 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v172, %loop114 ]
  %r122 = phi ptr [ %p113, %exists91 ], [ %p123, %loop114 ]
  %p123 = getelementptr float, ptr %r122, i64 %a59
  %i124 = mul i64 %i110, 8
  %p125 = getelementptr float, ptr %r122, i64 %i124
  %x126 = load <8 x float>, ptr %p125, align 4
  %v127 = fcmp uno <8 x float> %x126, %x126
  %v128 = fcmp ogt <8 x float> %x126, %r118
  %v129 = select <8 x i1> %v128, <8 x float> %x126, <8 x float> %r118
  %v130 = select <8 x i1> %v127, <8 x float> %x126, <8 x float> %v129
  %p131 = getelementptr float, ptr %p125, i64 8
  %x132 = load <8 x float>, ptr %p131, align 4
  %v133 = fcmp uno <8 x float> %x132, %x132
  %v134 = fcmp ogt <8 x float> %x132, %v130
  %v135 = select <8 x i1> %v134, <8 x float> %x132, <8 x float> %v130
  %v136 = select <8 x i1> %v133, <8 x float> %x132, <8 x float> %v135
  %p137 = getelementptr float, ptr %p125, i64 16
  %x138 = load <8 x float>, ptr %p137, align 4
  %v139 = fcmp uno <8 x float> %x138, %x138
  %v140 = fcmp ogt <8 x float> %x138, %r119
  %v141 = select <8 x i1> %v140, <8 x float> %x138, <8 x float> %r119
  %v142 = select <8 x i1> %v139, <8 x float> %x138, <8 x float> %v141
  %p143 = getelementptr float, ptr %p125, i64 24
  %x144 = load <8 x float>, ptr %p143, align 4
  %v145 = fcmp uno <8 x float> %x144, %x144
  %v146 = fcmp ogt <8 x float> %x144, %v142
  %v147 = select <8 x i1> %v146, <8 x float> %x144, <8 x float> %v142
  %v148 = select <8 x i1> %v145, <8 x float> %x144, <8 x float> %v147
  %p149 = getelementptr float, ptr %p125, i64 32
  %x150 = load <8 x float>, ptr %p149, align 4
  %v151 = fcmp uno <8 x float> %x150, %x150
  %v152 = fcmp ogt <8 x float> %x150, %r120
  %v153 = select <8 x i1> %v152, <8 x float> %x150, <8 x float> %r120
  %v154 = select <8 x i1> %v151, <8 x float> %x150, <8 x float> %v153
  %p155 = getelementptr float, ptr %p125, i64 40
  %x156 = load <8 x float>, ptr %p155, align 4
  %v157 = fcmp uno <8 x float> %x156, %x156
  %v158 = fcmp ogt <8 x float> %x156, %v154
  %v159 = select <8 x i1> %v158, <8 x float> %x156, <8 x float> %v154
  %v160 = select <8 x i1> %v157, <8 x float> %x156, <8 x float> %v159
  %p161 = getelementptr float, ptr %p125, i64 48
  %x162 = load <8 x float>, ptr %p161, align 4
  %v163 = fcmp uno <8 x float> %x162, %x162
  %v164 = fcmp ogt <8 x float> %x162, %r121
  %v165 = select <8 x i1> %v164, <8 x float> %x162, <8 x float> %r121
  %v166 = select <8 x i1> %v163, <8 x float> %x162, <8 x float> %v165
  %p167 = getelementptr float, ptr %p125, i64 56
  %x168 = load <8 x float>, ptr %p167, align 4
  %v169 = fcmp uno <8 x float> %x168, %x168
  %v170 = fcmp ogt <8 x float> %x168, %v166
  %v171 = select <8 x i1> %v170, <8 x float> %x168, <8 x float> %v166
  %v172 = select <8 x i1> %v169, <8 x float> %x168, <8 x float> %v171
  %i173 = add nsw i64 %i117, 1
  %c174 = icmp slt i64 %i173, %i105
  br i1 %c174, label %loop114, label %done115
done115:
  %r175 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v136, %loop114 ]
  %r176 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v148, %loop114 ]
  %r177 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v160, %loop114 ]
  %r178 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists91 ], [ %v172, %loop114 ]
  %r179 = phi ptr [ %p113, %exists91 ], [ %p123, %loop114 ]
  %i180 = mul i64 %r88, %a63
  %i181 = mul i64 %r85, %a65
  %i182 = add i64 %i180, %i181
  %i183 = mul i64 %r87, %a67
  %i184 = add i64 %i182, %i183
  %i185 = mul i64 %i90, %a69
  %i186 = add i64 %i184, %i185
  %p187 = getelementptr float, ptr %a61, i64 %i186
  store <8 x float> %r175, ptr %p187, align 4
  %p188 = getelementptr float, ptr %p187, i64 8
  store <8 x float> %r176, ptr %p188, align 4
  %p189 = getelementptr float, ptr %p187, i64 16
  store <8 x float> %r177, ptr %p189, align 4
  %p190 = getelementptr float, ptr %p187, i64 24
  store <8 x float> %r178, ptr %p190, align 4
  br label %after92
after92:
  %i191 = zext i1 true to i64
  %i192 = add i64 %r84, %i191
  %c193 = icmp eq i64 %i192, %a17
  %i194 = select i1 %c193, i64 0, i64 %i192
  %i195 = zext i1 %c193 to i64
  %i196 = add i64 %r85, %i195
  %c197 = icmp eq i64 %i196, %a13
  %i198 = select i1 %c197, i64 0, i64 %i196
  %i199 = zext i1 %c197 to i64
  %i200 = add i64 %r86, %i199
  %c201 = icmp eq i64 %i200, %a19
  %i202 = select i1 %c201, i64 0, i64 %i200
  %i203 = zext i1 %c201 to i64
  %i204 = add i64 %r87, %i203
  %c205 = icmp eq i64 %i204, %a15
  %i206 = select i1 %c205, i64 0, i64 %i204
  %i207 = zext i1 %c205 to i64
  %i208 = add i64 %r88, %i207
  %i209 = add nsw i64 %i83, 1
  %c210 = icmp slt i64 %i209, %end
  br i1 %c210, label %loop80, label %done81
done81:
  %r211 = phi i64 [ %i72, %entry ], [ %i194, %after92 ]
  %r212 = phi i64 [ %i74, %entry ], [ %i198, %after92 ]
  %r213 = phi i64 [ %i76, %entry ], [ %i202, %after92 ]
  %r214 = phi i64 [ %i78, %entry ], [ %i206, %after92 ]
  %r215 = phi i64 [ %i79, %entry ], [ %i208, %after92 ]
  ret void
}

; layout|from|8|8
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load i64, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load i64, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %i22 = urem i64 %begin, %a13
  %i23 = udiv i64 %begin, %a13
  %i24 = urem i64 %i23, %a7
  %i25 = udiv i64 %i23, %a7
  %c28 = icmp slt i64 %begin, %end
  br i1 %c28, label %loop26, label %done27
loop26:
  %i29 = phi i64 [ %begin, %entry ], [ %i146, %done112 ]
  %r30 = phi i64 [ %i22, %entry ], [ %i139, %done112 ]
  %r31 = phi i64 [ %i24, %entry ], [ %i143, %done112 ]
  %r32 = phi i64 [ %i25, %entry ], [ %i145, %done112 ]
  %i33 = mul i64 %r32, %a15
  %i34 = mul i64 %r31, 8
  %i35 = mul i64 %i34, %a17
  %i36 = add i64 %i33, %i35
  %i37 = mul i64 %r32, %a19
  %i38 = mul i64 %r31, %a21
  %i39 = add i64 %i37, %i38
  %p40 = getelementptr float, ptr %a1, i64 %i36
  %p41 = getelementptr float, ptr %a3, i64 %i39
  %i42 = mul i64 %r30, %a11
  %i43 = add i64 %i42, %a11
  %c44 = icmp slt i64 %i43, %a9
  %i45 = select i1 %c44, i64 %i43, i64 %a9
  %i46 = sub i64 %i45, %i42
  %i47 = sdiv i64 %i46, 8
  %i48 = mul i64 %i47, 8
  %i49 = add i64 %i42, %i48
  %c52 = icmp slt i64 %i42, %i49
  br i1 %c52, label %loop50, label %done51
loop50:
  %i53 = phi i64 [ %i42, %loop26 ], [ %i109, %loop50 ]
  %p54 = getelementptr float, ptr %p40, i64 %i53
  %i55 = mul i64 %i53, 8
  %p56 = getelementptr float, ptr %p41, i64 %i55
  %p57 = getelementptr float, ptr %p54, i64 %a17
  %i58 = mul i64 2, %a17
  %p59 = getelementptr float, ptr %p54, i64 %i58
  %i60 = mul i64 3, %a17
  %p61 = getelementptr float, ptr %p54, i64 %i60
  %i62 = mul i64 4, %a17
  %p63 = getelementptr float, ptr %p54, i64 %i62
  %i64 = mul i64 5, %a17
  %p65 = getelementptr float, ptr %p54, i64 %i64
  %i66 = mul i64 6, %a17
  %p67 = getelementptr float, ptr %p54, i64 %i66
  %i68 = mul i64 7, %a17
  %p69 = getelementptr float, ptr %p54, i64 %i68
  %p70 = getelementptr float, ptr %p56, i64 8
  %p71 = getelementptr float, ptr %p56, i64 16
  %p72 = getelementptr float, ptr %p56, i64 24
  %p73 = getelementptr float, ptr %p56, i64 32
  %p74 = getelementptr float, ptr %p56, i64 40
  %p75 = getelementptr float, ptr %p56, i64 48
  %p76 = getelementptr float, ptr %p56, i64 56
  %v77 = load <8 x float>, ptr %p56, align 4
  %v78 = load <8 x float>, ptr %p70, align 4
  %v79 = load <8 x float>, ptr %p71, align 4
  %v80 = load <8 x float>, ptr %p72, align 4
  %v81 = load <8 x float>, ptr %p73, align 4
  %v82 = load <8 x float>, ptr %p74, align 4
  %v83 = load <8 x float>, ptr %p75, align 4
  %v84 = load <8 x float>, ptr %p76, align 4
  %v85 = shufflevector <8 x float> %v77, <8 x float> %v81, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v86 = shufflevector <8 x float> %v77, <8 x float> %v81, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v87 = shufflevector <8 x float> %v78, <8 x float> %v82, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v88 = shufflevector <8 x float> %v78, <8 x float> %v82, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v89 = shufflevector <8 x float> %v79, <8 x float> %v83, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v90 = shufflevector <8 x float> %v79, <8 x float> %v83, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v91 = shufflevector <8 x float> %v80, <8 x float> %v84, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v92 = shufflevector <8 x float> %v80, <8 x float> %v84, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v93 = shufflevector <8 x float> %v85, <8 x float> %v89, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v94 = shufflevector <8 x float> %v85, <8 x float> %v89, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v95 = shufflevector <8 x float> %v87, <8 x float> %v91, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v96 = shufflevector <8 x float> %v87, <8 x float> %v91, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v97 = shufflevector <8 x float> %v86, <8 x float> %v90, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v98 = shufflevector <8 x float> %v86, <8 x float> %v90, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v99 = shufflevector <8 x float> %v88, <8 x float> %v92, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v100 = shufflevector <8 x float> %v88, <8 x float> %v92, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v101 = shufflevector <8 x float> %v93, <8 x float> %v95, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v102 = shufflevector <8 x float> %v93, <8 x float> %v95, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v103 = shufflevector <8 x float> %v94, <8 x float> %v96, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v104 = shufflevector <8 x float> %v94, <8 x float> %v96, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v105 = shufflevector <8 x float> %v97, <8 x float> %v99, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v106 = shufflevector <8 x float> %v97, <8 x float> %v99, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v107 = shufflevector <8 x float> %v98, <8 x float> %v100, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v108 = shufflevector <8 x float> %v98, <8 x float> %v100, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  store <8 x float> %v101, ptr %p54, align 4
  store <8 x float> %v102, ptr %p57, align 4
  store <8 x float> %v103, ptr %p59, align 4
  store <8 x float> %v104, ptr %p61, align 4
  store <8 x float> %v105, ptr %p63, align 4
  store <8 x float> %v106, ptr %p65, align 4
  store <8 x float> %v107, ptr %p67, align 4
  store <8 x float> %v108, ptr %p69, align 4
  %i109 = add nsw i64 %i53, 8
  %c110 = icmp slt i64 %i109, %i49
  br i1 %c110, label %loop50, label %done51
done51:
  %c113 = icmp slt i64 %i49, %i45
  br i1 %c113, label %loop111, label %done112
loop111:
  %i114 = phi i64 [ %i49, %done51 ], [ %i134, %loop111 ]
  %p115 = getelementptr float, ptr %p40, i64 %i114
  %i116 = mul i64 %i114, 8
  %p117 = getelementptr float, ptr %p41, i64 %i116
  %v118 = load <8 x float>, ptr %p117, align 4
  %v119 = extractelement <8 x float> %v118, i32 0
  store float %v119, ptr %p115, align 4
  %p120 = getelementptr float, ptr %p115, i64 %a17
  %v121 = extractelement <8 x float> %v118, i32 1
  store float %v121, ptr %p120, align 4
  %p122 = getelementptr float, ptr %p120, i64 %a17
  %v123 = extractelement <8 x float> %v118, i32 2
  store float %v123, ptr %p122, align 4
  %p124 = getelementptr float, ptr %p122, i64 %a17
  %v125 = extractelement <8 x float> %v118, i32 3
  store float %v125, ptr %p124, align 4
  %p126 = getelementptr float, ptr %p124, i64 %a17
  %v127 = extractelement <8 x float> %v118, i32 4
  store float %v127, ptr %p126, align 4
  %p128 = getelementptr float, ptr %p126, i64 %a17
  %v129 = extractelement <8 x float> %v118, i32 5
  store float %v129, ptr %p128, align 4
  %p130 = getelementptr float, ptr %p128, i64 %a17
  %v131 = extractelement <8 x float> %v118, i32 6
  store float %v131, ptr %p130, align 4
  %p132 = getelementptr float, ptr %p130, i64 %a17
  %v133 = extractelement <8 x float> %v118, i32 7
  store float %v133, ptr %p132, align 4
  %i134 = add nsw i64 %i114, 1
  %c135 = icmp slt i64 %i134, %i45
  br i1 %c135, label %loop111, label %done112
done112:
  %i136 = zext i1 true to i64
  %i137 = add i64 %r30, %i136
  %c138 = icmp eq i64 %i137, %a13
  %i139 = select i1 %c138, i64 0, i64 %i137
  %i140 = zext i1 %c138 to i64
  %i141 = add i64 %r31, %i140
  %c142 = icmp eq i64 %i141, %a7
  %i143 = select i1 %c142, i64 0, i64 %i141
  %i144 = zext i1 %c142 to i64
  %i145 = add i64 %r32, %i144
  %i146 = add nsw i64 %i29, 1
  %c147 = icmp slt i64 %i146, %end
  br i1 %c147, label %loop26, label %done27
done27:
  %r148 = phi i64 [ %i22, %entry ], [ %i139, %done112 ]
  %r149 = phi i64 [ %i24, %entry ], [ %i143, %done112 ]
  %r150 = phi i64 [ %i25, %entry ], [ %i145, %done112 ]
  ret void
}
